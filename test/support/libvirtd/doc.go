// Package libvirtd runs an isolated libvirtd, for tests and for the demo.
//
// The daemon is libvirt's monolithic libvirtd with its qemu, network and storage drivers. It runs in new mount and PID
// namespaces: configuration, state, logs and sockets are in one folder, and its virtual machines end with it. A libvirt
// of the machine itself is not used. Of the machine's files, only missing folders such as /var/lib/libvirt are created, as
// mount points. The network namespace is the caller's, so virtual machines attach to the caller's bridges; netns.Main
// gives a test process a private one.
//
// It needs root and the programs that Needs lists.
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
// Its /run/openvswitch is the folder "ovs", where a test may run Open vSwitch. It has the
// storage pool "default" and no libvirt networks. Without hardware virtualization, use "domain_type: qemu".
package libvirtd
