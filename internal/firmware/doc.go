// Package firmware holds the network boot programs that machines run first.
//
// It owns the names under which they are served and where each comes from: a folder of the user's, what "make assets"
// embedded into the daemon, or Debian's package ipxe, in that order. It never serves anything itself.
//
// The embedded UEFI programs run embed.ipxe first: where the appliance serves autoexec.ipxe beside them, that script is the
// boot script, and iPXE takes no lease of its own. They leave with an error when a script does, as local boot needs.
//
//	fsys := firmware.FS("")                     // or the folder of "bootlab serve --firmware"
//	for _, name := range firmware.Missing(fsys) { … warn … }
//	http.ServeFileFS(w, r, fsys, firmware.UEFI)
package firmware
