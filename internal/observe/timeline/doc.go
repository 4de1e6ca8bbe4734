// Package timeline keeps the story of each machine's boots.
//
// It is an event.Recorder: it sorts events by machine, groups them into boots and remembers a bounded number of both, so
// that people can see what happened. It never decides anything, and nothing correct depends on it. In memory it holds some
// 2 KiB for a machine with ten boots; the events themselves are in the store and are read when somebody asks. A writer
// behind a bounded queue saves them once a second, so that a crash loses the last second at most.
//
//	tl, err := timeline.Open(ctx, timeline.Config{}, timeline.Deps{Store: s, Log: log, Metrics: registry})
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{tl}})
//	go tl.Run(ctx)                             // saves; returns once the last event is saved
//	boots, err := tl.Boots(ctx, "master-0")    // a host, or the MAC of a stranger with colons; the oldest first
//	timeline.Format(os.Stdout, boots[0], timeline.Options{})
//
// A boot begins
//
//   - when a virtual machine is started, or an installation is armed;
//   - when firmware asks for an address, once the boot before it fetched something or was silent for a minute: firmware
//     repeats its question for about that long;
//   - when iPXE asks for an address after a boot that has got its script already, as for a ROM that holds iPXE;
//   - when a script is fetched after a file or a document was: iPXE fetches autoexec.ipxe and boot.ipxe in a row;
//   - when an operating system asks for an address after the installer was done, or after ten minutes of silence.
//
// Everything else, such as a renewed lease or a backend that comes up, belongs to the boot before it. So does what was refused to
// somebody who asked in the machine's name from an address that is not its own; it makes no boot a failed one. Of the boots of a
// machine the oldest that did not fail is forgotten first.
package timeline
