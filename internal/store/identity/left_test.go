package identity_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestLeft: without markers, something that only a daemon makes shows that there was a store, until an admin accepts the loss or the store is
// back.
func TestLeft(t *testing.T) {
	t.Parallel()
	// lose is what leaves a folder with neither store nor markers.
	lose := func(s *site) {
		s.start()
		s.s = storetest.Memory()
		s.remove(s.inFolder, s.besideLab)
	}
	for _, tt := range []struct {
		name string
		do   func(s *site)
		lost bool
	}{
		{"no store, no marker", lose, true},
		{"an empty file for the marker beside the lab", func(s *site) { lose(s); s.write(s.besideLab, "") }, true},
		{"after restarts that nobody accepted", func(s *site) { lose(s); s.start(); s.start() }, true},
		{"installs do not end it", func(s *site) { lose(s); s.advance(s.start()) }, true},
		{"it was accepted", func(s *site) { lose(s); s.accept() }, false},
		{"it was accepted, and a start later the markers are gone", func(s *site) { lose(s); s.accept(); s.start(); s.remove(s.inFolder, s.besideLab) }, false},
		{"the store is back", func(s *site) {
			s.start()
			old := s.s
			s.s = storetest.Memory()
			s.remove(s.inFolder, s.besideLab)
			s.start()
			s.s = old
		}, false},
		{"a backup was restored", func(s *site) { lose(s); s.start(); s.restore(nil) }, false},
		{"a backup of the lost store was restored", func(s *site) {
			lose(s)
			s.start()
			saved, err := s.s.Get(s.t.Context(), identity.Key)
			if err != nil {
				s.t.Fatal(err)
			}
			s.restore(saved)
			s.start()
		}, false},
		{"a store that is in use", func(s *site) { s.start() }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.start() // a first start finds nothing
			s.left = "/state/consoles"
			tt.do(s)
			const why = "the state folder has no state, but /state/consoles shows that there was one"
			if id := s.find(); tt.lost != (id.Lost() == why) || !tt.lost && id.Lost() != "" || id.First() {
				t.Errorf("lost %q, first %v", id.Lost(), id.First())
			}
		})
	}
}

// TestBackWithoutMarker: where no marker says which store was lost, another one in the place of the state folder is it.
func TestBackWithoutMarker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.left = "/state/consoles"
	id := s.start()
	if back, err := id.Back(s.inFolder); back || err != nil {
		t.Errorf("a folder without a marker: %v, %v", back, err)
	}
	other := newSite(t)
	other.start()
	if back, err := id.Back(other.inFolder); !back || err != nil {
		t.Errorf("a marker of another store: %v, %v", back, err)
	}
	if lost := id.Lost(); !strings.Contains(lost, "/state/consoles") {
		t.Errorf("lost: %q", lost)
	}
}
