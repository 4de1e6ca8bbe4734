// Package dhcpload loads a DHCP server as a relay would, in closed loop, and checks every answer.
//
// A closed loop keeps a fixed number of exchanges in flight: each that ends starts the next. So it finds the speed of a server
// without a given rate, and never floods a slow one.
//
//	c, err := dhcpload.New(dhcpload.Config{Server: server, Sources: relays, First: first, Size: 200_000})
//	r, err := c.DORA(ctx, dhcpload.Machines{First: 0, Count: 10_000}) // new leases
//	r, err = c.Renew(ctx, dhcpload.Machines{First: 0, Count: 2_000}, 20_000)
//
// Every answer must carry the transaction and the machine that were asked for, an address inside the pool, that no other
// machine has, and an ACK the address of its OFFER. Other answers count as wrong, never as done.
//
// It uses one relay address per socket, sends and receives in batches, and has a small parser of its own, since on one CPU it must be
// several times as fast as the server: Fake measures that.
package dhcpload
