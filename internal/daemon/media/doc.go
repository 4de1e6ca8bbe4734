// Package media downloads virtual media of the Redfish service into the CD drives of virtual machines.
//
// A download goes straight into the storage pool of the hypervisor, within limits, and from addresses that are allowed only: who may insert
// media shall not reach what only this machine may.
//
//	m := media.New(virt, panics, allowed)
//	err := m.Insert(ctx, host, image, most)
package media
