// Package bootloop detects machines in a boot loop: iPXE runs again and again, and no operating system sends a DHCP message.
//
// There are two kinds of loops. Two servers see them, and both report to one Detector:
//
//   - iPXE gets an address and the name of its script, and never requests the script. The iPXE of a NIC may lack HTTP, as old ones do: the
//     DHCP server then gives it bootlab's own boot program by TFTP. Where that cannot fetch its script either, it gets no boot file, so that
//     the firmware goes on to its next boot device.
//   - iPXE fetches its script again and again: the script loads itself, or fails at once. The boot service then gives it a script that
//     prints this on the machine's screen.
//
// A machine that a person or a test resets is no loop: that is slower. The first DHCP message of an operating system clears what was
// counted.
//
// Anybody can forge DHCP packets in a machine's name, and so make it get the boot program, with which it boots all the same. A lease counts
// towards getting no boot file only if the machine has received a boot program before it, which a neighbour cannot forge.
//
//	d := bootloop.New(time.Now)
//	if d.ScriptLoops(mac) { … }  // a script is requested
//	d.ScriptReceived(mac)         // and received
package bootloop
