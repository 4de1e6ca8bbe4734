// Package machine decides what a machine is: off, booting, installing, serving …
//
// It is the one place with these rules. It owns the stages and how long a machine may be silent in one before it counts as stopped. It asks
// nobody and keeps nothing: the daemon observes, and status, clusters, why, dashboard and metrics show what Of returns.
//
//	s := machine.Of(machine.Observation{Power: machine.On, Install: status, Boot: last, Check: check}, now)
//	fmt.Println(s.Stage, s.Why)
//
// What was not measured is unknown: it is neither good nor bad, nor new.
package machine
