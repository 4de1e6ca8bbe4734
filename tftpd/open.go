package tftpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strings"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A refusal is why a request is answered with an ERROR packet. The message goes to the client and says nothing about this
// machine; err goes to the operator.
type refusal struct {
	code     ErrorCode
	message  string
	reason   event.Reason
	err      error
	reported bool // the boot service has recorded an event: no second one
}

// Error is for the operator: it leaves out the message.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.err }

var (
	errNoSuchPath = errors.New("no such path")
	errOutside    = errors.New("the address is in no network of the lab; appliance.tftp_allow lists further clients")
	errNoLease    = errors.New("the address is leased to no machine")
)

// refuse chooses the ERROR packet for err.
func refuse(err error) error {
	switch {
	case err == nil:
		return nil
	// The client does not learn whether a file exists that no profile names.
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, files.ErrUnnamed):
		return &refusal{code: CodeNotFound, reason: files.ReasonOf(err), message: "file not found", err: err}
	case errors.Is(err, fs.ErrPermission):
		return &refusal{code: CodeAccess, reason: files.ReasonOf(err), message: "access violation", err: err}
	}
	return &refusal{code: CodeUndefined, reason: event.Unreadable, message: "cannot read file", err: err}
}

// open opens what t names. The error is always a *refusal.
func (s *Server) open(ctx context.Context, table *Table, t target, from netip.AddrPort) (content, error) {
	c, err := s.find(ctx, table, t, from)
	var r *refusal
	if errors.As(err, &r) && t.kind != script && optional(t.name) {
		r.code, r.message, r.reported = CodeNotFound, "file not found", true
	}
	return c, err
}

func (s *Server) find(ctx context.Context, table *Table, t target, from netip.AddrPort) (content, error) {
	switch t.kind {
	case script:
		return s.openScript(ctx, table, t, from)
	case firmware:
		c, err := s.openFirmware(t.name)
		if !errors.Is(err, fs.ErrNotExist) || !t.mac.IsZero() {
			return c, refuse(err)
		}
		// A bare name that is no firmware may be a file of the lab.
	}
	c, err := s.openFile(table, t.name)
	if err != nil {
		if name, ok := s.inHostTree(table, t.name, from.Addr()); ok {
			c, err = s.openFile(table, name)
		}
	}
	return c, refuse(err)
}

// grubByMAC is GRUB's configuration for a machine whose address another DHCP server gave: it asks again, by its MAC.
const grubByMAC = "source ($root)/" + lab.PathBoot + "$net_default_mac/" + lab.GRUBName + "\n"

// openScript renders the script of a machine. Where the name does not carry the MAC, the lease does.
func (s *Server) openScript(ctx context.Context, table *Table, t target, from netip.AddrPort) (content, error) {
	mac := t.mac
	if mac.IsZero() {
		var ok bool
		if mac, ok = s.deps.Leases.MACOf(table.lab, from.Addr()); !ok && t.name == lab.GRUBName {
			return inMemory([]byte(grubByMAC)), nil
		} else if !ok {
			return content{}, &refusal{code: CodeNotFound, reason: event.UnknownMachine, message: "file not found", err: errNoLease}
		}
	}
	script, err := s.deps.Scripts.Script(ctx, mac, from, t.name)
	if err != nil {
		r := &refusal{code: CodeUndefined, message: "no boot script", err: err, reported: true}
		if code, ok := codeBy(err); ok {
			r.code = code
		}
		return content{}, r
	}
	c := inMemory(script.Body)
	c.received = script.Received
	return c, nil
}

// codeBy returns the code of the boot service's refusal; false if err is none.
func codeBy(err error) (code ErrorCode, ok bool) {
	r, ok := errors.AsType[*boot.Refusal](err)
	if !ok {
		return code, false
	}
	switch r.Status {
	case http.StatusNotFound, http.StatusGone:
		return CodeNotFound, true
	case http.StatusForbidden, http.StatusUnauthorized:
		return CodeAccess, true
	}
	return CodeUndefined, true
}

// openFirmware opens a network boot program, by its exact name first.
func (s *Server) openFirmware(name string) (content, error) {
	f, err := s.deps.Firmware.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if exact, ok := s.foldFirmware(name); ok {
			f, err = s.deps.Firmware.Open(exact)
		}
	}
	if err != nil {
		return content{}, err
	}
	return randomAccess(f)
}

// foldFirmware returns the name of the program that differs from name in case at most.
func (s *Server) foldFirmware(name string) (string, bool) {
	entries, err := fs.ReadDir(s.deps.Firmware, ".")
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), name) {
			return e.Name(), true
		}
	}
	return "", false
}

// cacheFrom is how many transfers there must be for files to be cached.
const cacheFrom = 16

// openFile opens a file of the lab, by its exact name first.
func (s *Server) openFile(table *Table, name string) (content, error) {
	f, err := table.files.OpenFold(name)
	if err != nil {
		return content{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return content{}, errors.Join(err, f.Close())
	}
	if s.running.Load() > cacheFrom {
		return s.cache.open(f.File, info), nil
	}
	return content{ReaderAt: f, size: info.Size(), close: f.Close}, nil
}

// inHostTree returns where a name is below the tree of the profile that the machine boots: some firmware asks for files by
// fixed names, as a Raspberry Pi does for "config.txt" and "start4.elf". As for scripts, a MAC in the name says which machine, else the
// lease does. ok is false for a machine without a tree.
func (s *Server) inHostTree(table *Table, name string, from netip.Addr) (file string, ok bool) {
	mac, rest := cutHostFolder(name)
	if mac.IsZero() {
		mac, _ = s.deps.Leases.MACOf(table.lab, from)
	}
	h := table.lab.MachineOf(mac, from.Unmap())
	if h == nil || h.Profile == nil || h.Profile.Tree == "" || !h.BootsFrom(mac) {
		return "", false
	}
	return path.Join(h.Profile.Tree, rest), true
}

// maxInMemory is the most that is read into memory for one transfer: files without random access, and text in netascii mode.
const maxInMemory = 32 << 20

var errTooLarge = fmt.Errorf("more than %d MiB", maxInMemory>>20)

// content is what a transfer sends. It has random access, since blocks may have to be sent again.
type content struct {
	io.ReaderAt
	size     int64
	inMemory bool
	close    func() error // never nil

	received func(context.Context) error // is called once the client has acknowledged it; nil: nothing
}

func inMemory(b []byte) content {
	return content{ReaderAt: bytes.NewReader(b), size: int64(len(b)), inMemory: true, close: func() error { return nil }}
}

// randomAccess makes content of a file, in memory if need be.
func randomAccess(f fs.File) (content, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: info.Name(), Err: fs.ErrPermission}
	}
	if err != nil {
		return content{}, errors.Join(err, f.Close())
	}
	if r, ok := f.(io.ReaderAt); ok {
		_, onDisk := f.(*os.File)
		return content{ReaderAt: r, size: info.Size(), inMemory: !onDisk, close: f.Close}, nil
	}
	defer f.Close()
	b, err := readInMemory(f)
	return inMemory(b), err
}

func readInMemory(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInMemory+1))
	if err == nil && len(b) > maxInMemory {
		err = errTooLarge
	}
	return b, err
}

// netascii encodes a text as RFC 764 wants it: a line ends in CR LF, a bare CR is CR NUL.
func netascii(c content) (content, error) {
	defer c.close()
	b, err := readInMemory(io.NewSectionReader(c, 0, c.size))
	if err != nil {
		return content{}, refuse(err)
	}
	out := make([]byte, 0, len(b)+len(b)/16)
	for _, x := range b {
		switch x {
		case '\n':
			out = append(out, '\r', '\n')
		case '\r':
			out = append(out, '\r', 0)
		default:
			out = append(out, x)
		}
	}
	text := inMemory(out)
	text.received = c.received
	return text, nil
}
