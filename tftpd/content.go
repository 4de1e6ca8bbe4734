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
	"regexp"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// maxInMemory is the most that is held in memory for one transfer: what has no random access, and text in netascii mode.
const maxInMemory = 32 << 20

// content is what a transfer sends. It is read at random, as blocks may have to be sent again.
type content struct {
	io.ReaderAt
	size     int64
	inMemory bool         // in memory: to read it ahead would gain nothing
	close    func() error // never nil
}

func inMemory(b []byte) content {
	return content{ReaderAt: bytes.NewReader(b), size: int64(len(b)), inMemory: true, close: func() error { return nil }}
}

// A refusal is why a request is answered with an ERROR packet. The message goes to the client and tells nothing about
// this machine; err goes to the operator.
type refusal struct {
	code    ErrorCode
	message string
	err     error
	told    bool // the desk that renders scripts has told what happened: no second event
}

// Error is for the operator: message, which the client is told, is not in it.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap returns what went wrong here.
func (r *refusal) Unwrap() error { return r.err }

var (
	errNoSuchPath = errors.New("no such path")
	errNoLease    = errors.New("the address is leased to no machine")
	errTooLarge   = fmt.Errorf("more than %d MiB", maxInMemory>>20)
)

// open finds what t names. The error is always a *refusal.
func (s *Server) open(ctx context.Context, table *Table, t target, from netip.Addr) (content, error) {
	c, err := s.find(ctx, table, t, from)
	var r *refusal
	if errors.As(err, &r) && t.what != wantScript && optional(t.name) {
		r.code, r.message, r.told = CodeNotFound, "file not found", true
	}
	return c, err
}

func (s *Server) find(ctx context.Context, table *Table, t target, from netip.Addr) (content, error) {
	switch t.what {
	case wantScript:
		return s.openScript(ctx, t, from)
	case wantFirmware:
		c, err := s.openFirmware(t.name)
		if !errors.Is(err, fs.ErrNotExist) || !t.mac.IsZero() {
			return c, refuse(err)
		}
		// A bare name that is no firmware may be a file in the lab's folder.
	}
	c, err := s.openFile(table, t.name)
	if err != nil {
		if name, ok := s.inHostTree(table, t.name, from); ok {
			c, err = s.openFile(table, name)
		}
	}
	return c, refuse(err)
}

// refuse chooses the ERROR packet for err.
func refuse(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &refusal{code: CodeNotFound, message: "file not found", err: err}
	case errors.Is(err, fs.ErrPermission):
		return &refusal{code: CodeAccess, message: "access violation", err: err}
	}
	return &refusal{code: CodeUndefined, message: "cannot read file", err: err}
}

// grubByMAC is GRUB's configuration for a machine whose address another DHCP server gave: it asks again, by its MAC.
const grubByMAC = "source ($root)/" + lab.PathBoot + "$net_default_mac/" + lab.GRUBName + "\n"

// openScript has the script of a machine rendered. Where the name does not carry the MAC, the lease does.
func (s *Server) openScript(ctx context.Context, t target, from netip.Addr) (content, error) {
	mac := t.mac
	if mac.IsZero() {
		var ok bool
		if mac, ok = s.deps.Leases.MACOf(from); !ok && t.name == lab.GRUBName {
			return inMemory([]byte(grubByMAC)), nil
		} else if !ok {
			return content{}, &refusal{code: CodeNotFound, message: "file not found", err: errNoLease}
		}
	}
	b, err := s.deps.Scripts.Script(ctx, mac, from, t.name)
	if err != nil {
		r := &refusal{code: CodeUndefined, message: "no boot script", err: err, told: true}
		var status interface{ HTTPStatus() int }
		if errors.As(err, &status) {
			r.code = codeOf(status.HTTPStatus())
		}
		return content{}, r
	}
	return inMemory(b), nil
}

func codeOf(status int) ErrorCode {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return CodeNotFound
	case http.StatusForbidden, http.StatusUnauthorized:
		return CodeAccess
	}
	return CodeUndefined
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
	return random(f)
}

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

// random gives a file random access, in memory if need be.
func random(f fs.File) (content, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: info.Name(), Err: fs.ErrPermission}
	}
	if err != nil {
		return content{}, errors.Join(err, f.Close())
	}
	if r, ok := f.(io.ReaderAt); ok {
		_, far := f.(*os.File)
		return content{ReaderAt: r, size: info.Size(), inMemory: !far, close: f.Close}, nil
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

// openFile opens a file of the lab, by its exact name first.
func (s *Server) openFile(table *Table, name string) (content, error) {
	f, err := table.files.Open(name)
	if err != nil {
		if folded := table.files.Fold(name); folded != name {
			f, err = table.files.Open(folded)
		}
	}
	if err != nil {
		return content{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return content{}, errors.Join(err, f.Close())
	}
	if crowded(int(s.running.Load())) {
		return s.fileCache.share(f, info), nil
	}
	return content{ReaderAt: f, size: info.Size(), close: f.Close}, nil
}

// netascii rewrites a text as RFC 764 wants it: a line ends in CR LF, a bare CR is CR NUL.
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
	return inMemory(out), nil
}

// label is how events name the file: as the client asked for it, made printable.
func label(name string) string { return redact(printable(trimOptionEnd(name))) }

// token is what the one-time secret of a boot looks like (crypto/rand.Text).
var token = regexp.MustCompile(`(?i)[A-Z2-7]{26,}`)

// redact takes out what may be a token: a machine that fetches its config document by TFTP, where there is none, shows it.
func redact(text string) string { return token.ReplaceAllString(text, "…") }

// macOf returns the MAC that a name carries, or zero.
func macOf(name string) lab.MAC {
	t, _ := resolve(name)
	return t.mac
}
