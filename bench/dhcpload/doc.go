// Package dhcpload loads a DHCP server as a relay would, in closed loop, and checks every answer.
//
// A closed loop keeps a fixed number of exchanges in flight: each that ends starts the next. So it finds the speed of a server
// without asking for a rate, and never floods one that is slow.
//
//	c, err := dhcpload.New(dhcpload.Config{Server: server, Sources: relays, First: first, Size: 200_000})
//	r, err := c.DORA(ctx, dhcpload.Machines{First: 0, Count: 10_000}) // who has had no address gets one
//	r, err = c.Renew(ctx, dhcpload.Machines{First: 0, Count: 2_000}, 20_000)
//
// Every answer must carry the transaction and the machine that were asked for, an address inside the pool, that no other
// machine has, and an ACK the address of its OFFER. What does not is counted as wrong, never as done.
//
// It speaks to one relay address per socket, sends and receives in batches, and parses with a few lines of its own, since it
// must be several times as fast as what it measures, on one CPU: Fake shows how fast that is.
package dhcpload
