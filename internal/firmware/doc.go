// Package firmware holds the network boot programs that machines run first.
//
// It owns the names under which they are served and where each comes from: a folder of the user's, what "make assets"
// embedded into the daemon, or Debian's packages, in that order. iPXE is for every machine; shim and GRUB, which only a
// distribution can sign, are for those that enforce Secure Boot. It never serves anything itself.
//
// The embedded programs run embed.ipxe first: where the appliance serves autoexec.ipxe beside them, that script is the
// boot script, and iPXE takes no lease of its own. They leave with an error when a script does, as local boot needs.
// Package kpxe puts embed.ipxe into the one for BIOS.
//
//	fsys := firmware.FS("")                     // or the folder of "bootlab serve --firmware"
//	for _, name := range firmware.Missing(fsys) { … warn … }
//	programs, err := firmware.List("")          // each with version, origin, licence and checksum
//	http.ServeFileFS(w, r, fsys, firmware.UEFI)
package firmware
