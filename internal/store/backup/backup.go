package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bootlab/bootlab/internal/store"
)

// Version is the format that this program writes, and the newest that it reads.
const Version = 1

// maxLine bounds one entry, in bytes.
const maxLine = 64 << 20

// A Header says where a backup is from.
type Header struct {
	Format  int       `json:"bootlab_backup"` // set by Write
	Lab     string    `json:"lab"`
	Version string    `json:"version"` // of the bootlab that wrote it
	Created time.Time `json:"created"`
}

// A Summary is what a backup holds.
type Summary struct {
	Header
	Entries int            `json:"entries"`
	Kinds   map[string]int `json:"kinds"` // entries by the first part of their key, up to the slash: "lease", "install"
	SHA256  string         `json:"sha256"`
}

// An Entry is one key of the store.
type Entry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// A Backup is a whole one, in memory.
type Backup struct {
	Summary
	Entries []Entry // by key
}

// An end is the last line: of a whole backup the counts and the sum, else the error that cut it.
type end struct {
	Entries int            `json:"entries"`
	Kinds   map[string]int `json:"kinds"`
	SHA256  string         `json:"sha256"`
	Error   string         `json:"error,omitempty"`
}

// kindOf returns what counts together with a key.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return kind
}

// Write writes everything that the store has at the start of the call. The store takes commits meanwhile. If the store fails,
// the error is also the last line of the backup, so that its reader knows why it is not whole.
func Write(ctx context.Context, w io.Writer, s store.Store, h Header) (Summary, error) {
	h.Format = Version
	out := &writer{to: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	done := Summary{Header: h, Kinds: map[string]int{}}
	if err := out.line(h); err != nil {
		return done, err
	}
	err := s.Scan(ctx, "", func(key string, value []byte) error {
		if !utf8.ValidString(key) {
			return fmt.Errorf("key %q is not text", key)
		}
		done.Entries++
		done.Kinds[kindOf(key)]++
		if value == nil {
			value = []byte{} // null is no value
		}
		return out.line(Entry{key, value})
	})
	if err != nil {
		_ = out.line(struct { // where the writer failed, it is not read
			Error string `json:"error"`
		}{err.Error()})
		return done, errors.Join(fmt.Errorf("write backup: %w", err), out.to.Flush())
	}
	done.SHA256 = hex.EncodeToString(out.sum.Sum(nil))
	if err := out.line(end{Entries: done.Entries, Kinds: done.Kinds, SHA256: done.SHA256}); err != nil {
		return done, err
	}
	return done, out.to.Flush()
}

// A writer writes lines and sums them.
type writer struct {
	to  *bufio.Writer
	sum hash.Hash
}

func (w *writer) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if len(b) > maxLine {
		return fmt.Errorf("an entry has %d bytes, more than %d", len(b), maxLine)
	}
	w.sum.Write(b)
	_, err = w.to.Write(b)
	return err
}

// Read reads a backup. Its errors are sentences about "it", the backup: not whole, damaged, of a newer format, no backup at
// all.
func Read(r io.Reader) (*Backup, error) {
	b := &Backup{}
	var err error
	b.Summary, err = Verify(r, func(e Entry) { b.Entries = append(b.Entries, e) })
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Verify is Read that calls entry for each entry and keeps none. Until it has returned nil, entries may be damaged.
func Verify(r io.Reader, entry func(Entry)) (Summary, error) {
	in := &reader{from: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	s := Summary{Kinds: map[string]int{}}
	h, err := in.header()
	if err != nil {
		return s, err
	}
	s.Header = h
	for last := ""; ; {
		sum := hex.EncodeToString(in.sum.Sum(nil))
		b, err := in.line()
		if errors.Is(err, io.EOF) {
			return s, fmt.Errorf("it is incomplete: it was cut after %d entries; use another backup", s.Entries)
		}
		if err != nil {
			return s, err
		}
		var line struct {
			Entry
			end
		}
		switch err := decode(b, &line); {
		case err != nil:
			return s, fmt.Errorf("it is damaged at line %d; use another backup", s.Entries+2)
		case line.Error != "":
			return s, fmt.Errorf("it is incomplete: the daemon could not read its state: %s", line.Error)
		case line.SHA256 != "":
			s.SHA256 = sum
			return s, in.checkEnd(b, s)
		case line.Key <= last && s.Entries > 0: // either may be the one that was changed
			return s, fmt.Errorf("it is damaged at line %d or %d, whose keys are not in order; use another backup", s.Entries+1, s.Entries+2)
		case line.Key <= last || line.Value == nil:
			return s, fmt.Errorf("it is damaged at line %d; use another backup", s.Entries+2)
		}
		last = line.Key
		s.Entries++
		s.Kinds[kindOf(line.Key)]++
		entry(line.Entry)
	}
}

// A reader reads lines and sums them.
type reader struct {
	from *bufio.Reader
	sum  hash.Hash
	buf  []byte
}

// line returns the next whole line, which is valid until the next call, or io.EOF.
func (r *reader) line() ([]byte, error) {
	r.buf = r.buf[:0]
	for {
		part, err := r.from.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		switch {
		case len(r.buf) > maxLine:
			return nil, fmt.Errorf("it is damaged: a line has more than %d bytes; use another backup", maxLine)
		case err == nil:
			r.sum.Write(r.buf)
			return r.buf, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// header reads the first line.
func (r *reader) header() (h Header, err error) {
	start, err := r.from.Peek(len(stateFile))
	switch {
	case len(start) == 0 && errors.Is(err, io.EOF):
		return h, errors.New("it is empty; use another backup")
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return h, errors.New("it is compressed: decompress it with gunzip first")
	case string(start) == stateFile:
		return h, errors.New("it is a copy of a state file, not a backup: use a backup; without one stop the daemon, copy it over state.db in the state folder, " +
			"and start the daemon, which takes a copy that lacks a later start or install for a loss of the state (docs/operations.md#the-state-folder-was-lost)")
	}
	b, err := r.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return h, err
	}
	var known struct {
		Format *int `json:"bootlab_backup"`
	}
	switch {
	case errors.Is(err, io.EOF) && strings.HasPrefix(string(r.buf), `{"bootlab_backup":`):
		return h, errors.New("it is incomplete: it was cut in its first line; use another backup")
	case err != nil || json.Unmarshal(b, &known) != nil || known.Format == nil:
		return h, errors.New("it is not a bootlab backup")
	case *known.Format > Version:
		return h, fmt.Errorf("it has format %d and this bootlab reads up to format %d: use the bootlab that wrote it, or a newer one", *known.Format, Version)
	case *known.Format < 1 || decode(b, &h) != nil:
		return h, errors.New("it is damaged at line 1; use another backup")
	}
	return h, nil
}

// stateFile is how the files of package logfile begin, which people may take for backups.
const stateFile = "bootlab\n"

// checkEnd compares the last line with what was read, and makes sure that it is the last.
func (r *reader) checkEnd(last []byte, read Summary) error {
	want, err := json.Marshal(end{Entries: read.Entries, Kinds: read.Kinds, SHA256: read.SHA256})
	if err != nil || string(last) != string(want)+"\n" {
		return errors.New("it is damaged: its checksum does not match; use another backup")
	}
	switch _, err := r.from.ReadByte(); {
	case err == nil:
		return errors.New("it is damaged: data follows its end; use another backup")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// decode reads one JSON value and refuses keys that this format does not have.
func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
