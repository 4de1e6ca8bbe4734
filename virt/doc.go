// Package virt makes the virtual machines of one lab, on any number of hypervisors.
//
// It owns the libvirt domains and volumes that follow from the "vm" of a host: Compile says what they should be, a Server
// creates, starts, stops, deletes and lists them. It is the only importer of libvirt. It never touches a domain that does
// not carry this lab's mark, nor a volume that no such domain uses, and it changes nothing by itself: somebody asks for
// every step.
//
//	table, err := virt.Compile(l)
//	if err != nil {
//		return err // lab.Problems, each with its place in the lab file
//	}
//	s, err := virt.New(virt.Config{}, virt.Deps{Table: func() *virt.Table { return table }, Events: bus, …})
//	err = s.Create(ctx, "master-0") // volumes and domain; once more changes nothing
//	err = s.Start(ctx, "master-0")
//
// libvirt's library is loaded when the first virtual machine is asked for. Without it everything works but the virtual
// machines, and the error says so.
package virt
