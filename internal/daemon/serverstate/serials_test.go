package serverstate

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/internal/store/records"
)

// TestSerials: a zone's serial moves when, and only when, its own content does, also twice in one second and over restarts.
func TestSerials(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), logfile.Name)
	open := func() (*Serials, store.Store) {
		db, _, err := logfile.Open(path)
		must(t, err)
		s, err := OpenSerials(t.Context(), db, records.NewSaver(db), slog.New(slog.DiscardHandler))
		must(t, err)
		return s, db
	}
	zone := func(origin string, lines ...string) *lab.Zone {
		z := &lab.Zone{Origin: origin}
		for _, text := range lines {
			z.Lines = append(z.Lines, lab.Line{Text: text})
		}
		return z
	}
	assigned := func(s *Serials, zones ...*lab.Zone) map[string]uint32 {
		table, err := dnsd.Compile(&lab.Lab{Zones: zones}, nil)
		must(t, err)
		got := map[string]uint32{}
		for _, c := range s.Assign(table).Contents() {
			got[c.Origin] = c.Serial
		}
		return got
	}
	s, db := open()
	a, b := zone("a.test.", "www A 192.0.2.1"), zone("b.test.", "@ SOA ns h 7 1 1 1 1", "www A 192.0.2.1")
	first := assigned(s, a, b)
	if first["a.test."] == 0 || first["b.test."] != 7 {
		t.Fatalf("at first: %v", first)
	}
	if again := assigned(s, a, b); again["a.test."] != first["a.test."] || again["b.test."] != 7 {
		t.Errorf("nothing changed: %v after %v", again, first)
	}
	a2 := zone("a.test.", "www A 192.0.2.2")
	second := assigned(s, a2, b)
	third := assigned(s, a, b)
	if second["a.test."] <= first["a.test."] || third["a.test."] <= second["a.test."] || second["b.test."] != 7 || third["b.test."] != 7 {
		t.Errorf("one zone changed, twice at once: %v, %v, %v", first, second, third)
	}
	must(t, db.Close())
	s, db = open()
	defer db.Close()
	if again := assigned(s, a, b); again["a.test."] != third["a.test."] {
		t.Errorf("a restart changed the serial: %v after %v", again, third)
	}
	if last := assigned(s, a2, b); last["a.test."] <= third["a.test."] {
		t.Errorf("a change after a restart: %v after %v", last, third)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
