package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var header = Header{Lab: "telco", Version: "v0.2.0", Created: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)}

// filled returns a store with these entries.
func filled(t testing.TB, entries ...Entry) store.Store {
	t.Helper()
	s := storetest.Memory()
	for _, e := range entries {
		if err := s.Commit(context.Background(), store.Put(e.Key, e.Value)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var some = []Entry{
	{"install/master-0", []byte(`{"state":"installed"}`)},
	{"lease/10.0.0.1", []byte{1, 1, 0xff, 0, '\n'}},
	{"lease/10.0.0.2", []byte{}},
	{"timeline/<a>&/ü", []byte("x")},
}

// written returns a backup of some.
func written(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(context.Background(), &b, filled(t, some...), header); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRoundTrip: what is read is what was written, counts and sum included.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	wrote, err := Write(t.Context(), &file, filled(t, some...), header)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wrote, got.Summary); diff != "" {
		t.Errorf("summary (-written +read):\n%s", diff)
	}
	if diff := cmp.Diff(some, got.Entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	want := map[string]int{"install": 1, "lease": 2, "timeline": 1}
	if diff := cmp.Diff(want, got.Kinds); diff != "" || got.Lab != "telco" || got.Format != Version || got.Summary.Entries != 4 {
		t.Errorf("%+v\n%s", got.Summary, diff)
	}
}

// TestEmpty: a store without a key has a backup too.
func TestEmpty(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if _, err := Write(t.Context(), &file, filled(t), header); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(&file); err != nil || len(b.Entries) > 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestDamage: no byte of a backup can change, and none can be missing at its end, without an error.
func TestDamage(t *testing.T) {
	t.Parallel()
	whole := written(t)
	for n := range whole {
		if _, err := Read(bytes.NewReader(whole[:n])); err == nil {
			t.Fatalf("cut to %d of %d bytes: no error", n, len(whole))
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			if _, err := Read(bytes.NewReader(b)); err == nil {
				t.Fatalf("bit %d of byte %d changed: no error:\n%s", bit, i, b)
			}
		}
	}
}

// TestRefusals: the error says what is wrong with the file and what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	whole := string(written(t))
	lines := strings.SplitAfter(whole, "\n")
	for _, tt := range []struct{ name, text, err string }{
		{"empty", "", "it is empty"},
		{"not one", "leases: []\n", "it is not a bootlab backup"},
		{"binary", strings.Repeat("\x00\x01", 5000), "it is not a bootlab backup"},
		{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00", "it is compressed: decompress it with gunzip first"},
		{"a state file", "bootlab\n\x01\x00\x00\x00", "it is a copy of a state file, not a backup: use a backup; without one stop the daemon, copy it over state.db in the state folder, and start the daemon, which takes a copy that lacks a later start or install for a loss of the state (docs/operations.md#the-state-folder-was-lost)"},
		{"newer", strings.Replace(whole, `{"bootlab_backup":1,`, `{"bootlab_backup":2,"new":true,`, 1), "it has format 2 and this bootlab reads up to format 1: use the bootlab that wrote it, or a newer one"},
		{"cut in the header", lines[0][:40], "it is incomplete: it was cut in its first line"},
		{"cut between lines", strings.Join(lines[:3], ""), "it is incomplete: it was cut after 2 entries; use another backup"},
		{"cut in a line", whole[:len(whole)-20], "it is incomplete: it was cut after 4 entries"},
		{"a line is gone", lines[0] + strings.Join(lines[2:], ""), "it is damaged: its checksum does not match"},
		{"a line twice", lines[0] + lines[1] + strings.Join(lines[1:], ""), "it is damaged at line 2 or 3, whose keys are not in order; use another backup"},
		{"a key that was changed", strings.Replace(whole, `{"key":"lease/10.0.0.1"`, `{"key":"zease/10.0.0.1"`, 1), "it is damaged at line 3 or 4, whose keys are not in order; use another backup"},
		{"not JSON", strings.Replace(whole, `{"key":"lease/10.0.0.1"`, `{"key:"lease/10.0.0.1"`, 1), "it is damaged at line 3"},
		{"another value", strings.Replace(whole, `"value":"e`, `"value":"f`, 1), "it is damaged: its checksum does not match"},
		{"two in one", whole + whole, "it is damaged: data follows its end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := Read(strings.NewReader(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), tt.err) || b != nil {
				t.Errorf("%v, %v; want %q", b, err, tt.err)
			}
		})
	}
}

// failing is a store that breaks while it is read.
type failing struct{ store.Store }

func (failing) Scan(_ context.Context, _ string, fn func(string, []byte) error) error {
	return errors.Join(fn("lease/10.0.0.1", nil), errors.New("value at offset 8192 was damaged on disk"))
}

// TestFailingStore: a store that cannot be read whole gives no backup, and the reader of the stream learns why.
func TestFailingStore(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if _, err := Write(t.Context(), &file, failing{}, header); err == nil {
		t.Error("no error")
	}
	if _, err := Read(&file); err == nil || !strings.Contains(err.Error(), "could not read its state: value at offset 8192") {
		t.Error(err)
	}
}

// broken is a reader of a backup that goes away.
type broken struct{ left int }

func (w *broken) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// TestBrokenWriter: an error of the writer is not lost in a buffer.
func TestBrokenWriter(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 70_000} {
		var many []Entry
		for i := range 3000 {
			many = append(many, Entry{fmt.Sprintf("lease/%05d", i), make([]byte, 30)})
		}
		if _, err := Write(t.Context(), &broken{n}, filled(t, many...), header); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// FuzzRead: what Read takes survives being written and read again.
func FuzzRead(f *testing.F) {
	f.Add(written(f))
	f.Add([]byte(`{"bootlab_backup":1,"lab":"","version":"","created":"0001-01-01T00:00:00Z"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if _, err := Write(t.Context(), &again, filled(t, b.Entries...), b.Header); err != nil {
			t.Fatal(err)
		}
		same, err := Read(&again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b.Entries, same.Entries); diff != "" {
			t.Errorf("written again it differs (-first +again): %s", diff)
		}
	})
}
