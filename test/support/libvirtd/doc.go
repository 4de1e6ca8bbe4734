// Package libvirtd runs a libvirtd of its own, for tests and for the demo.
//
// The daemon is the real one (libvirt's monolithic libvirtd with its qemu, network and storage drivers), but it lives
// in a mount namespace and a PID namespace of its own: configuration, state, logs and sockets are below one folder,
// and every virtual machine that it started dies with it. The libvirt of the machine, if there is one, is neither
// used nor touched, but for empty folders such as /var/lib/libvirt that are made where there are none, to mount over.
// The network namespace is the caller's, so virtual machines attach to bridges that the caller made; whoever wants
// those to be private too goes into a network namespace first (netns.Main does).
//
// It needs root and the programs that Needs lists, but no test: the demo starts it in the same way.
//
//	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: dir})
//	if err != nil {
//		return err
//	}
//	defer d.Stop()
//	// d.URI goes into the lab file: hypervisors: {local: {uri: "…", pool: default, domain_type: qemu}}
//
// In a test:
//
//	netns.Need(t, libvirtd.Needs()...)
//	d, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: t.TempDir()})
//	…
//	t.Cleanup(func() { d.Stop() })
//
// A storage pool "default" is there from the start. There are no libvirt networks. Machines without hardware
// virtualization want "domain_type: qemu".
package libvirtd
