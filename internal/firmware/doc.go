// Package firmware holds the network boot programs that machines run first.
//
// It owns the names under which they are served and where each comes from: a folder of the user's, what "make assets"
// embedded into the daemon, or Debian's package ipxe, in that order. It never serves anything itself.
//
//	fsys := firmware.FS("")                     // or the folder of "bootlab serve --firmware"
//	for _, name := range firmware.Missing(fsys) { … warn … }
//	http.ServeFileFS(w, r, fsys, firmware.UEFI)
package firmware
