// Package virt manages the virtual machines of one lab on libvirt hypervisors.
//
// It owns the libvirt domains and volumes of hosts with a "vm" in the lab file: Compile derives them, a Server creates,
// starts, stops, deletes and lists them. It is the only importer of libvirt. It never changes a domain without this lab's
// metadata, nor a volume that no such domain uses, and it acts only when asked.
//
//	table, err := virt.Compile(l)
//	if err != nil {
//		return err // lab.Problems, with positions in the lab file
//	}
//	s, err := virt.New(virt.Config{}, virt.Deps{Table: func() *virt.Table { return table }, Events: bus, …})
//	err = s.Create(ctx, "master-0") // volumes and domain; idempotent
//	err = s.Start(ctx, "master-0")
//
// libvirt's library is loaded only in processes of their own, one for each hypervisor, which Processes runs and HypervisorProcess
// is: it may crash or hang there. Without it only virtual machines fail, and the error says so. The server has no sockets:
// Serve(ctx) refreshes the state of the hypervisors, and ends their processes when ctx ends.
package virt
