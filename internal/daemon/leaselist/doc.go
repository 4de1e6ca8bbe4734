// Package leaselist shows leases to people: page by page, with what the lab knows of them.
//
// It reads the lease book and the lab, and needs memory for one page, however many leases there are.
//
//	page := leaselist.Page(l, book, clock, query)
package leaselist
