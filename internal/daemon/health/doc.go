// Package health says of each server whether it serves all that it should, since when, and if not, why.
//
// Servers and sockets report to it, and it asks the kernel whether the addresses and interfaces are there. It opens and repairs nothing.
//
//	servers := health.New()
//	servers.Opened(health.DNS, "10.0.0.1:53", nil)
//	all := servers.States(health.Moment{Lab: l}) // for people
package health
