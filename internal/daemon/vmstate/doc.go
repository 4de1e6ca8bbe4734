// Package vmstate keeps in the store what package virt has to know after a restart: one record for each virtual machine or hypervisor.
//
//	placements := vmstate.Placements(s, saver)
//	all, err := placements.Load(ctx)
package vmstate
