// Package tftpd serves firmware, boot scripts and the lab's files by TFTP, read-only.
//
// It owns the protocol: RFC 1350 with the options of RFC 2347, 2348 (blksize), 2349 (timeout, tsize) and 7440 (windowsize), one
// goroutine for each transfer, and the limit of transfers. It never accepts a file, never lists a folder, never decides what a
// machine boots, and serves no file that package files does not allow.
//
//	table := tftpd.Compile(l, files)
//	s, err := tftpd.New(tftpd.Config{}, tftpd.Deps{Table: current, Firmware: firmware.FS(dir), Scripts: boot, …})
//	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 69})
//	err = s.Serve(ctx, conn) // nil when ctx ends and transfers have finished
//
// A name is one of
//
//	boot/<mac>/<program>              firmware; a bare <program> too
//	boot/<mac>/boot.ipxe              the script rendered for that machine; a bare boot.ipxe or autoexec.ipxe too, for the
//	boot/<mac>/autoexec.ipxe          machine that has the address the request comes from
//	files/<path>, <path>              what profiles name, and files/public/
//	<serial or mac>/<path>, <path>    else: the same below the tree of the machine's profile (Raspberry Pi)
//
// A request's way: server.go receives it, restart.go decides whether it may replace a transfer of its client, request.go admits it, name.go
// parses its name, open.go opens what it names, then request.go negotiates options, and transfer.go sends the packets of readahead.go over a transport: a socket of its own or the shared port.
//
// pin/tftp is not used: it has no windowsize, answers few options and has crashed on failing readers. It is a client in the
// tests, and no production code imports it.
package tftpd
