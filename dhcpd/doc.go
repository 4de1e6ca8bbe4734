// Package dhcpd answers DHCPv4 from one inventory.
//
// It decides which machine gets an address, from whom of the lab, and what it is told to boot in which stage (firmware,
// iPXE, operating system). Its rooms do the rest: wire reads and writes packets, leases keeps the book, segment holds the
// sockets, probes addresses and listens for other servers. It never reads the lab file, never renders a script and never
// answers before what it says is durable.
//
//	book, err := leases.Open(ctx, store, time.Now)
//	srv := dhcpd.New(dhcpd.Config{}, dhcpd.Deps{Table: table, Book: book, Events: bus, Log: log, …})
//	staged, err := srv.Stage(t) // opens the sockets: a taken port fails here
//	staged.Commit()
//	err = srv.Serve(ctx)
//
// A packet is read, placed in a network and answered on the goroutine that received it. Only a lease to be stored goes to
// the committer, with its acknowledgement already written; and only an address that nobody looked at yet waits for a probe.
//
// Identity is the hardware address alone. Firmware, iPXE, installer and installed system of one machine send four
// different client identifiers; whoever keys on them ends with three leases for one machine.
package dhcpd
