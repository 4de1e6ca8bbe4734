package tftpd

import (
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is what the server answers from: the files of the lab that may be fetched, and what each machine boots. It is
// immutable.
type Table struct {
	lab   *lab.Lab
	files *files.Files
}

// Compile returns the table of a lab. It does no I/O. Errors are lab.Problems.
func Compile(l *lab.Lab) (*Table, error) {
	files, err := files.Compile(l)
	if err != nil {
		return nil, err
	}
	return NewTable(l, files), nil
}

// NewTable returns the table of a lab whose files are compiled already, to be served by HTTP too.
func NewTable(l *lab.Lab, files *files.Files) *Table { return &Table{lab: l, files: files} }

// Files returns the files of the lab that may be fetched.
func (t *Table) Files() *files.Files { return t.files }
