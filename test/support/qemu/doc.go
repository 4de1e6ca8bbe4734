// Package qemu starts emulated machines that boot from a test's network, and reads their serial console.
//
// It owns the QEMU process, its tap device and its disk, and removes them with the test. It never uses KVM, so it runs wherever the tests
// run. Every wait has a deadline, and a failed test logs the tail of the console.
//
//	seg := netns.NewSegment(t, "10.77.0.1/24")
//	m := qemu.Start(t, qemu.Config{Bridge: seg.Bridge, MAC: "52:54:00:77:00:01", Firmware: qemu.UEFIPXE, Disk: qemu.NewDisk(t, 1<<30)})
//	m.Await(t, time.Minute, "GUEST install done")
package qemu
