// Package leaseimport brings leases of another server into the DHCP server, and says which were skipped and why.
//
//	done, err := leaseimport.Import(ctx, server, all, api.ReplaceLeases, api.CheckImport)
package leaseimport
