// Package tftpd serves firmware, boot scripts and the lab's files by TFTP, read-only.
//
// It owns the wire: RFC 1350 with the options of RFC 2347, 2348 (blksize), 2349 (timeout, tsize) and 7440 (windowsize), one
// goroutine for each transfer with a port of its own or, where that is configured, one port for all, and the bound on how many
// there are. It never takes a file, never lists a folder, never decides what a machine boots, and never reads a file that package
// serving does not allow.
//
//	table, err := tftpd.Compile(l)
//	s, err := tftpd.New(tftpd.Config{}, tftpd.Deps{Table: current, Firmware: firmware.FS(dir), Scripts: desk, …})
//	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 69})
//	err = s.Serve(ctx, conn) // nil when ctx ends and transfers have finished
//
// A name is one of
//
//	boot/<mac>/<program>              firmware; a bare <program> too
//	boot/<mac>/boot.ipxe              the script rendered for that machine; a bare boot.ipxe or autoexec.ipxe too, for the
//	boot/<mac>/autoexec.ipxe          machine that has the address the request comes from
//	files/<path>, <path>              what profiles name, and files/public/
//	<serial or mac>/<path>, <path>    else: the same below the tree of what the machine boots (Raspberry Pi)
//
// A transfer (transfer.go) takes packets from a readAhead, which reads ahead, and talks to its client through a line: a port or a
// mailbox. A port decides by its busyPoll whether to sleep.
//
// The sender is our own: pin/tftp knows no windowsize, answers few options and has crashed on failing readers. It is the
// lock-step client in the tests and nothing else; no production code imports it.
package tftpd
