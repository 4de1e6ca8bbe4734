// Package serviceaddr has this machine hold the addresses of a lab's clusters and balancers, and says which of them clients reach.
//
// Package internal/host/vip adds, announces and removes them. Here is which ones they are, on which interfaces, whose they are now, what is
// stored of them, and what people read.
//
//	a, err := serviceaddr.Open(ctx, deps)
//	a.Want(l)
//	err = a.Run(ctx)
package serviceaddr
