// Package portowner says which process holds a port.
//
// "Address already in use" is how a first start ends most often, because ports 53, 67 and 69 belong to somebody on many
// machines. The kernel does not say to whom; /proc does.
//
//	pc, err := net.ListenPacket("udp", ":53")
//	if err != nil {
//		return portowner.Explain(err, "udp", ":53")
//		// listen udp :53: address already in use by systemd-resolve (pid 123): …
//	}
package portowner
