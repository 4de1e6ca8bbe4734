// Package dnsd answers DNS from the lab.
//
// It owns the zones derived from hosts and clusters, the static zones, the names of DHCP clients, and a caching
// forwarder for everything else. It never decides a name or an address (internal/lab does), never resolves iteratively, and
// is the only importer of miekg/dns, none of whose types appear in its API.
//
//	table, err := dnsd.Compile(l, readFile) // err lists every bad zone line with its place
//	s, err := dnsd.New(dnsd.Config{}, dnsd.Deps{
//		Table: func() *dnsd.Table { return snapshot.Load().DNS },
//		Now:   time.Now, Log: log, Registerer: reg, Leases: book,
//	})
//	err = s.Serve(ctx, udp, tcp) // nil when ctx ends
//
// A query's way: udp.go or tcp.go receives it, wire.go parses it, server.go decides, answer.go answers it from the Table or
// lease.go from the leases, else forward.go from cache.go or from other servers (upstream.go).
//
// A Table is flat: names and record data in one byte slice, found by one hash. A query that the table answers is parsed,
// answered and sent in its own receive buffer, without allocation; only queries for the forwarder leave the reader.
package dnsd
