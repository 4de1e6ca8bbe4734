// Package confinement decides which files the daemon of a lab may open after its start, and confines the process to them.
//
// Package internal/host/confine asks the kernel for it. What a reloaded lab names outside of these files is an error that says so.
//
//	c, err := confinement.Apply(l, labPath, firmware, log)
//	err = confinement.Outside(c, reloaded)
package confinement
