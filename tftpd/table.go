package tftpd

import (
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is what the server answers from: the files of the lab that may be fetched, and what each machine boots. It is
// immutable.
type Table struct {
	lab   *lab.Lab
	files *files.Files
}

// Compile returns the table of a lab whose files are compiled already: HTTP serves the same.
func Compile(l *lab.Lab, files *files.Files) *Table { return &Table{lab: l, files: files} }

// answers reports whether requests from an address are answered with more than an error. The source of a request can be forged, and what
// is sent there is longer than the request: unknown clients must not use the server to flood others.
func (t *Table) answers(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLoopback() || a.IsLinkLocalUnicast() || t.lab.NetworkOf(a) != nil || t.lab.HostByIP(a) != nil ||
		slices.ContainsFunc(t.lab.Appliance.TFTPAllow, func(p netip.Prefix) bool { return p.Contains(a) })
}
