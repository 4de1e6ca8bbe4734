// Package firmware holds the network boot programs that machines run first.
//
// It owns the names that they are served under and where each comes from: the folder of --firmware, the programs that "make
// assets" embedded into the daemon, or Debian's packages, in that order. Most machines run iPXE. Machines that enforce Secure Boot
// run shim and GRUB, which only a distribution can sign. The package serves nothing itself.
//
// The embedded programs run embed.ipxe first: where the appliance serves autoexec.ipxe in the same folder, that is the boot
// script, and iPXE takes no lease. They exit with an error when the script does, which local boot needs. fetch.go puts
// embed.ipxe into them.
//
//	fsys := firmware.FS("")                     // or the folder of "bootlab serve --firmware"
//	for _, name := range firmware.Missing(fsys) { … warn … }
//	programs, err := firmware.List("")          // each with version, origin, licence and checksum
//	http.ServeFileFS(w, r, fsys, firmware.UEFI)
package firmware
