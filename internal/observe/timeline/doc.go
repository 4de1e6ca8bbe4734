// Package timeline keeps the events of each machine's boots.
//
// It is an event.Recorder: it sorts events by machine, groups them into boots and keeps a bounded number of both. It decides nothing for
// others, and nothing correct depends on it. A machine with ten boots takes 2 KiB of memory; the events themselves are in the store and
// are read on request. A writer behind a bounded queue saves them once a second, so that a crash loses the last second at most.
//
//	tl, err := timeline.Open(ctx, timeline.Config{}, timeline.Deps{Store: s, Log: log, Registerer: registry})
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{tl}})
//	go tl.Run(ctx)                             // saves; returns once the last event is saved
//	boots, err := tl.Boots(ctx, "master-0")    // by host, or by MAC with colons; the oldest first
//	timeline.Format(os.Stdout, boots[0], timeline.Options{})
//
// A boot begins
//
//   - when a virtual machine is started, or an installation is armed;
//   - when firmware asks for an address, once the boot before it fetched something, had a system or had no event for a minute: firmware
//     repeats its DISCOVER for about that long;
//   - when iPXE asks for an address after a boot that has its script already, as with iPXE in the ROM;
//   - when a script is fetched after a file or a document was: iPXE fetches autoexec.ipxe and boot.ipxe in a row;
//   - when an operating system asks for an address after ten minutes without an event, if the boot before it is not done.
//
// What is done to a machine that has sent nothing, such as the creation of its virtual machine, or that it is armed or marked as installed,
// or that another machine uses its address, is kept like a boot whose outcome is None. A boot that is under way ends with the machine: when it is deleted. That an operation on it
// fails is an event, and fails no boot.
//
// A boot is done when its installer is, when the machine is sent to its own disk, or when the system that its script boots has an address or
// its document; one that is refused its document for an error of ours is not. A machine that fetched nothing is done when its own system has
// an address, unless it was armed before it asked; it is booting again if that fetches a script or installs. What comes later makes it no longer; what programs of the
// system request, or are refused, neither starts nor fails a boot. Its DHCP client is one of them: an installed machine that starts from its
// disk, without the network, has no boot.
//
// Every other event, such as a renewed lease, belongs to the boot before it. So does what a balancer sees of the machine, or an admin does to
// its lease, which makes no boot longer, and is not kept before the first boot. So does a refused request in the machine's name from an
// address that is not its own:
// it is marked claimed, and neither starts nor fails a boot. Of the boots of a machine the oldest that did not fail is dropped first.
package timeline
