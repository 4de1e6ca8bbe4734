// Package vmadmin answers what people ask of virtual machines and their hypervisors, and switches the power of all machines: through libvirt
// where they are virtual, else through their controllers.
//
// It puts the words of package virt into those of the API. It keeps nothing.
//
//	machines := vmadmin.New(vmadmin.Deps{Lab: lab, Virt: server, Consoles: consoles, Events: bus})
//	state, err := machines.Switch(ctx, host, power.Off, virt.StopForce)
package vmadmin
