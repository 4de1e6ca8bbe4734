// Package dhcpd answers DHCPv4 from one inventory.
//
// It owns the book of leases, the choice of a free address, and what a machine is told to boot in which stage (firmware,
// iPXE, operating system). It is the only importer of the DHCP codec. It never reads the lab file, never renders a script
// and never answers before what it says is durable.
//
//	book, err := dhcpd.OpenBook(ctx, store, time.Now)
//	srv := dhcpd.New(dhcpd.Config{}, dhcpd.Deps{Table: table, Book: book, Events: bus, Log: log, …})
//	staged, err := srv.Stage(t) // opens the sockets: a taken port fails here
//	staged.Commit()
//	err = srv.Serve(ctx)
//
// Identity is the hardware address alone. Firmware, iPXE, installer and installed system of one machine send four
// different client identifiers; whoever keys on them ends with three leases for one machine.
package dhcpd
