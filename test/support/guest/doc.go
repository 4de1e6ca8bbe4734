// Package guest builds the small operating system that the end-to-end tests and the demonstration boot and install.
//
// It is Debian's cloud kernel and busybox. Booted from the network it is an installer: it takes a lease, asks names,
// fetches its config document, writes a disk image and reports that it is done. The disk image holds the same kernel and
// initrd, boots on BIOS and UEFI, and prints on the console that it was booted from disk. All its lines there begin
// with GUEST.
//
//	files, err := guest.Build(ctx, ".cache")       // fetches two Debian packages the first time
//	… serve files.Kernel, files.Initrd, and files.Disk …
//
// The kernel arguments it knows: bootlab.config=URL of the config document, bootlab.done=URL, bootlab.image=URL of the
// disk image, bootlab.names=A,B names to resolve, BOOTIF=01-MAC. The config document holds lines KEY=VALUE with the same
// keys without "bootlab.", and disk= the disk to write to, message= a word that the installed system repeats, check= a URL that
// the installed system fetches, hold= a URL that has to be there before the image is asked for, then= what the installed system does at last: stay
// (default), poweroff, reboot.
//
// With proxmox-start-auto-installer among its arguments it asks for its config document as Proxmox' installer does.
//
// Run runs a command with programs of this machine under the same kernel, for features that this machine's kernel lacks.
package guest
