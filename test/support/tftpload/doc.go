// Package tftpload fetches a file by TFTP, once or by many clients at once, and compares every block with what it must be.
//
//	r, err := tftpload.Load(ctx, tftpload.Config{
//		Server: server, Name: "public/big", Want: content, Block: 1468, Window: 16, // RFC 2348, RFC 7440
//	})
//	fmt.Println(r.PerSecond(), r.Failed, r.Stall)
//
// One thread does it all, with system calls of its own, since it must be faster than what it measures. Alone, a client does not
// sleep between looks at its socket, unless Config.Wait says so: this measures the server, not how soon the kernel wakes the client.
package tftpload
