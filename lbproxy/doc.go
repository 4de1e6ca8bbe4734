// Package lbproxy balances TCP and HTTP connections over backends.
//
// It owns its listeners, the health of every backend and the drains made by hand. A Table is compiled from the lab and
// never changes; what is learned (health, drains, connection counts) is keyed by balancer and addr:port, so that a new
// table finds it again. It never terminates TLS, never looks into a TCP stream beyond the first bytes that tell several
// balancers of one address apart, and never answers with a status of its own in TCP mode: without a backend it resets.
//
//	t, err := lbproxy.Compile(l)
//	s, err := lbproxy.New(lbproxy.Config{}, lbproxy.Deps{Table: table, Events: bus, Log: log, Registerer: reg, Now: time.Now})
//	staged, err := s.Stage(t) // opens the listeners that are new, or none
//	staged.Commit()           // t is in force; listeners that are gone stop accepting, their connections go on
//	err = s.Serve(ctx)        // accepts and checks until ctx ends, then drains
//
// Bytes of TCP mode move by splice(2) between the two sockets and are never seen by this process.
package lbproxy
