// Package vips has this machine hold the VIPs of a lab, the addresses of its clusters and balancers, and says which of them clients reach.
//
// Package internal/host/link/vip adds, announces and removes them. Here is which ones they are, on which interfaces, whose they are now, what is
// stored of them, and what people read.
//
//	a, err := vips.Open(ctx, deps)
//	a.Want(l)
//	err = a.Run(ctx)
package vips
