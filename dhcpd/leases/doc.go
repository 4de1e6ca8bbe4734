// Package leases is the lease book: which machine has which address, durably.
//
// It owns the records in the store, the choice of an address for a machine, and the addresses that are offered
// to machines. It never sees a packet or a socket. Of the lab it knows the pools, which the caller passes.
//
//	clock, err := leases.OpenClock(ctx, store, leases.SystemHost())
//	pool := leases.NewPool(first, last, table.Reserved)
//	book, err := leases.Open(ctx, store, clock.Now, pool)
//
//	addr, fresh, err := book.Offer(leases.Request{MAC: mac, Subnet: subnet, Pool: pool, Requested: requested}) // DISCOVER
//	if book.Decide(mac, pool, addr, leases.Selecting).Free {                                                         // REQUEST
//		c := &leases.Change{Lease: leases.Lease{Addr: addr, MAC: mac, State: leases.Active, …}, Subnet: subnet}
//		book.Commit(ctx, []*leases.Change{c}) // once c.Err is nil, the ACK may leave
//	}
//	book.Reclaim(ctx, 256)           // regularly
//	book.StoreVerified(ctx, 256)     // likewise
//
// # Rules
//
// One machine (MAC) has at most one address in a subnet, and one address has at most one machine, whatever client
// identifiers firmware, iPXE and system send (RFC 2131 section 4.2 would tell them apart, and split one machine in three).
// A lease is durable before it is visible. An offer is kept in memory, and two offers of one
// address are never valid at a time. The commit decides again, which makes two leases of one
// address impossible. The states of an address and their transitions are in life.go.
//
// Times are those of a [Clock], which no correction of the wall clock moves; for people they are converted.
//
// # Memory
//
// A lease costs about 130 bytes: a slot of 48 bytes in a few large blocks, where numbers stand for pointers, its texts in one
// string, and three entries of Go's maps. No step of growth delays a packet. A timer wheel of one-second buckets finds leases that end
// without a search, and the numbers of [Book.Usage] are kept, not counted.
//
// The book never holds more than one lease for each address of the pools and reservations, and leases outside of them
// only until they are reclaimed. Offers are bounded by the size of their pool and by a constant.
package leases
