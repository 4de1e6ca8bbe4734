// Package dhcpd answers DHCPv4 from one inventory.
//
// It decides which machine gets an address, from which pool or reservation, and what it boots in each stage (firmware, iPXE,
// operating system). Its packages do the rest: wire parses and writes packets, leases keeps the leases, segment has the
// sockets, probes addresses and watches for rogue servers. It never reads the lab file, never renders a script, and never
// sends a lease that is not durable.
//
//	book, err := leases.Open(ctx, store, time.Now)
//	srv, err := dhcpd.New(dhcpd.Deps{Table: table, Book: book, Events: bus, Log: log, …})
//	staged, err := srv.Stage(t) // opens the sockets: a port in use fails here
//	staged.Commit()
//	err = srv.Serve(ctx) // closes them
//
// A new lease takes four packets (DORA: DHCPDISCOVER, DHCPOFFER, DHCPREQUEST, DHCPACK). A packet's way is receive
// (server.go), parse, match and dispatch (packet.go), a handler (discover.go, request.go, decline.go, proxy.go), the reply (reply.go, boot.go) and, for a new lease, the commit before it (commit.go). All of it runs
// on the goroutine that received the packet, except a commit, for which the DHCPACK is already written, and an offer that
// waits for a probe (probe.go).
//
// A machine is its MAC alone. Firmware, iPXE, installer and installed system of one machine send four different client
// identifiers; a server that uses them as keys has four leases for one machine.
package dhcpd
