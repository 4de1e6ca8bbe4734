// Package leaseadmin answers what people ask of leases: it lists them page by page, with what the lab knows of them, and imports those of
// another server.
//
// A list needs memory for one page, however many leases there are. An import says which leases were skipped and why.
//
//	page := leaseadmin.Page(l, book, clock, query)
//	done, err := leaseadmin.Import(ctx, server, all, api.ReplaceLeases, api.CheckImport)
package leaseadmin
