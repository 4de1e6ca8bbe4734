package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Paths are what the process may open. A path that does not exist is skipped. What is below a folder belongs to it, also what
// comes later; but a rule ends with its folder or file: one that takes its place needs a rule of the folder above.
type Paths struct {
	Execute []string // read, and run as programs
	Read    []string
	Write   []string // read, change, create and remove below these folders
	Remove  []string // remove names below these folders
	Devices []string // read and write these files
}

// A Confinement is what holds for the process.
type Confinement struct {
	Files string // what limits opening files, with its version; else "off: " and why
	Calls string // the same of system calls

	roots []fs.FileInfo // of what may be read; nil: everything
}

// The rights of each kind of path.
const (
	read    = ll.AccessFSReadFile | ll.AccessFSReadDir
	execute = read | ll.AccessFSExecute
	write   = read | ll.AccessFSWriteFile | ll.AccessFSTruncate | remove | ll.AccessFSMakeDir | ll.AccessFSMakeReg |
		ll.AccessFSMakeSock | ll.AccessFSMakeSym | ll.AccessFSRefer
	remove = ll.AccessFSRemoveFile
	device = ll.AccessFSReadFile | ll.AccessFSWriteFile
	// whole folders may be removed only where they may be created
	folders = ll.AccessFSRemoveDir
	// ofFile are the rights that a rule for something else than a folder may have.
	ofFile = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSExecute | ll.AccessFSTruncate
)

// minABI is the first version of Landlock that lets a file be moved to another folder, which a rule for Write promises.
const minABI = 2

// Apply confines the process. What the kernel does not have is named in the result; an error means that it has it and refused.
// Nothing may run before that should not be confined: it cannot be called twice to widen anything.
func Apply(p Paths) (*Confinement, error) {
	c := &Confinement{}
	var err error
	if c.Files, err = restrictFiles(p); err != nil {
		return nil, fmt.Errorf("confine the process to its files: %w", err)
	}
	if !strings.HasPrefix(c.Files, off) {
		c.roots = stat(p)
	}
	if c.Calls, err = restrictCalls(); err != nil {
		return nil, fmt.Errorf("confine the process to the system calls of a server: %w", err)
	}
	return c, nil
}

// off begins the text of what does not hold.
const off = "off: "

// Off is the confinement of a process that has none, for a reason.
func Off(reason string) *Confinement { return &Confinement{Files: off + reason, Calls: off + reason} }

// Outside reports whether path exists and cannot be read because of the confinement, whatever its permissions are: it is below
// no folder that was named to Apply. Symbolic links are followed, as the kernel does.
func (c *Confinement) Outside(path string) bool {
	if c.roots == nil {
		return false
	}
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(at) // not limited by Landlock
		if err != nil {
			return false
		}
		for _, root := range c.roots {
			if os.SameFile(root, info) {
				return false
			}
		}
		if at == filepath.Dir(at) {
			return true
		}
		at = filepath.Dir(at)
	}
}

// stat returns all folders and files that may be read.
func stat(p Paths) (roots []fs.FileInfo) {
	for _, paths := range [][]string{p.Execute, p.Read, p.Write, p.Devices} {
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil {
				roots = append(roots, info)
			}
		}
	}
	return roots
}

// restrictFiles limits which files may be opened, and returns what does.
func restrictFiles(p Paths) (string, error) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case err != nil:
		return off + "this kernel has no Landlock, or it is not enabled (lsm=landlock,…)", nil
	case abi < minABI:
		return fmt.Sprintf("%sthe kernel's Landlock has version %d: want %d (Linux 5.19) or higher", off, abi, minABI), nil
	}
	var rules []landlock.Rule
	for _, kind := range []struct {
		paths  []string
		rights landlock.AccessFSSet
	}{{p.Execute, execute}, {p.Read, read}, {p.Write, write | folders}, {p.Remove, remove}, {p.Devices, device}} {
		for _, path := range kind.paths {
			info, err := os.Stat(path)
			if err != nil {
				continue
			}
			rights := kind.rights
			if !info.IsDir() {
				rights &= ofFile
			}
			rules = append(rules, landlock.PathAccess(rights, path).IgnoreIfMissing())
		}
	}
	// Version 5 is the last one that limits only what files are for: later ones limit sockets that this process needs.
	if err := landlock.V5.BestEffort().RestrictPaths(rules...); err != nil {
		return "", err
	}
	return fmt.Sprintf("Landlock %d", abi), nil
}

// restrictCalls limits which system calls may be made, and returns what does.
func restrictCalls() (string, error) {
	program, err := filter()
	if err != nil {
		return "", err
	}
	if program == nil {
		return off + "no filter for this processor", nil
	}
	err = install(program)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return off + "this kernel has no seccomp filters", nil
	}
	if err != nil {
		return "", err
	}
	return "seccomp", nil
}
