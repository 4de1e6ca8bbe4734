package identity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A site is a state folder and a folder with a lab file.
type site struct {
	t                   *testing.T
	inFolder, besideLab string
	s                   store.Store
	hosts               []string
	left                string // what only a daemon makes, in the state folder
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"state", "lab"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &site{
		t: t, s: storetest.Memory(),
		inFolder: filepath.Join(dir, "state", identity.InFolder), besideLab: identity.BesideLab(filepath.Join(dir, "lab", "lab.yaml")),
	}
}

func (s *site) find() *identity.Identity {
	s.t.Helper()
	id, err := identity.Find(s.t.Context(), s.s, s.hosts, s.left, s.inFolder, s.besideLab)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// start is a start of the daemon that serves.
func (s *site) start() *identity.Identity {
	s.t.Helper()
	id := s.find()
	if err := id.Keep(s.t.Context(), nil); err != nil {
		s.t.Fatal(err)
	}
	if err := id.Served(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *site) put(key string) {
	s.t.Helper()
	if err := s.s.Commit(s.t.Context(), store.Put(key, []byte("{}"))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) remove(paths ...string) {
	s.t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			s.t.Fatal(err)
		}
	}
}

// copied returns a store with the same content.
func (s *site) copied() store.Store {
	s.t.Helper()
	to := storetest.Memory()
	err := s.s.Scan(s.t.Context(), "", func(key string, value []byte) error {
		return to.Commit(s.t.Context(), store.Put(key, slices.Clone(value)))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return to
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		do    func(s *site)
		first bool
		lost  string // part of the reason; empty: not lost
	}{
		{name: "nothing at all", do: func(*site) {}, first: true},
		{name: "a restart", do: func(s *site) { s.start() }},
		{name: "a first start that did not get as far as to serve", do: func(s *site) {
			if err := s.find().Keep(s.t.Context(), nil); err != nil {
				s.t.Fatal(err)
			}
		}, first: true},
		{name: "a database without a name, and no marker", do: func(s *site) { s.put("install/a") }, lost: "has no name: "},
		{name: "state.db was removed", do: func(s *site) { s.start(); s.s = storetest.Memory(); s.remove(s.besideLab) }, lost: "has no state, but "},
		{name: "the state folder was emptied or is not mounted", do: func(s *site) { s.start(); s.s = storetest.Memory(); s.remove(s.inFolder) }, lost: "has no state, but "},
		{name: "both markers were removed", do: func(s *site) { s.start(); s.remove(s.inFolder, s.besideLab) }},
		{name: "another database", do: func(s *site) {
			s.start()
			other := newSite(s.t)
			other.start()
			s.s = other.s
		}, lost: "is another one than "},
		{name: "the state folder of another lab", do: func(s *site) {
			s.start()
			other := newSite(s.t)
			other.start()
			s.s, s.inFolder = other.s, other.inFolder
		}, lost: "is another one than "},
		{name: "state folder and marker of another lab", do: func(s *site) { s.hosts = []string{"a", "b"}; s.start(); s.hosts = []string{"c"} }, lost: "of a lab with other hosts, such as a: "},
		{name: "the same, after a restart that nobody accepted", do: func(s *site) {
			s.hosts = []string{"a"}
			s.start()
			s.hosts = []string{"c"}
			s.start()
		}, lost: "of a lab with other hosts"},
		{name: "the same, accepted", do: func(s *site) {
			s.hosts = []string{"a"}
			s.start()
			s.hosts = []string{"c"}
			s.accept()
		}},
		{name: "one host of a lab stayed", do: func(s *site) { s.hosts = []string{"a", "b"}; s.start(); s.hosts = []string{"c", "b"} }},
		{name: "a lab without hosts", do: func(s *site) { s.hosts = []string{"a"}; s.start(); s.hosts = nil }},
		{name: "a database of an earlier version, without MACs", do: func(s *site) {
			s.hosts = []string{"a"}
			s.start()
			if err := s.s.Commit(s.t.Context(), store.Delete("store-hosts")); err != nil {
				s.t.Fatal(err)
			}
			s.hosts = []string{"c"}
		}},
		{name: "all hosts were replaced by a reload", do: func(s *site) {
			s.hosts = []string{"a"}
			id := s.start()
			s.hosts = []string{"c"}
			if op, changed := id.Reloaded(s.hosts); !changed || s.s.Commit(s.t.Context(), store.Txn{Then: []store.Op{op}}) != nil {
				s.t.Error("the hosts of the reload are not stored")
			}
			if _, again := id.Reloaded(s.hosts); again {
				s.t.Error("the same hosts are stored again")
			}
		}},
		{name: "a reload does not accept a loss", do: func(s *site) {
			s.hosts = []string{"a"}
			s.start()
			s.hosts = []string{"c"}
			if _, changed := s.start().Reloaded([]string{"d"}); changed {
				s.t.Error("the hosts of a lost state are stored")
			}
		}, lost: "of a lab with other hosts"},
		{name: "a backup of another lab was restored", do: func(s *site) {
			s.hosts = []string{"a"}
			s.start()
			s.restore(nil)
			s.hosts = []string{"c"}
		}},
		{name: "a database without a name", do: func(s *site) { s.start(); s.s = storetest.Memory(); s.put("install/a") }, lost: "has no name"},
		{name: "a copy that was made before the last start", do: func(s *site) {
			s.start()
			before := s.copied()
			s.start()
			s.s = before
		}, lost: "is older than "},
		{name: "a copy that was made before an install", do: func(s *site) {
			id := s.start()
			before := s.copied()
			s.advance(id)
			s.s = before
		}, lost: "is older than "},
		{name: "a whole state folder that was copied before an install", do: func(s *site) {
			id := s.start()
			before, marker := s.copied(), s.read(s.inFolder)
			s.advance(id)
			s.s = before
			s.write(s.inFolder, marker)
		}, lost: "is older than "},
		{name: "a crash after an install, before the markers were written", do: func(s *site) {
			id := s.start()
			inFolder, besideLab := s.read(s.inFolder), s.read(s.besideLab)
			s.advance(id)
			s.write(s.inFolder, inFolder)
			s.write(s.besideLab, besideLab)
		}},
		{name: "a crash while the marker beside the lab was written", do: func(s *site) { s.advance(s.start()); s.write(s.besideLab, `{"id": `) }},
		{name: "a copy that was made after the last install", do: func(s *site) { s.advance(s.start()); s.s = s.copied() }},
		{name: "a backup that was made before an install is restored", do: func(s *site) {
			id := s.start()
			saved, err := s.s.Get(s.t.Context(), identity.Key)
			if err != nil {
				s.t.Fatal(err)
			}
			s.advance(id)
			s.restore(saved)
		}},
		{name: "an install while the state is lost", do: func(s *site) {
			s.start()
			s.s = storetest.Memory()
			s.advance(s.start())
		}, lost: "is another one than "},
		{name: "a database that lost the change of its last start", do: func(s *site) {
			s.start()
			before := s.copied()
			s.start()
			s.s = damaged{before}
		}, lost: "the state database was damaged, and has lost the changes since "},
		{name: "an empty file for the marker beside the lab", do: func(s *site) { s.write(s.besideLab, "") }, first: true},
		{name: "an empty marker in the state folder", do: func(s *site) { s.write(s.inFolder, ""); s.write(s.besideLab, "") }, lost: "has no state, but "},
		{name: "a backup was restored", do: func(s *site) {
			s.start()
			saved, err := s.s.Get(s.t.Context(), identity.Key)
			if err != nil {
				s.t.Fatal(err)
			}
			s.start()
			s.restore(saved)
		}},
		{name: "a backup was restored, and a start later the markers are lost", do: func(s *site) {
			s.start()
			s.restore(nil)
			s.start()
			s.start()
			s.remove(s.inFolder)
		}},
		{name: "a restored state is lost", do: func(s *site) {
			s.start()
			s.restore(nil)
			s.start()
			s.s = storetest.Memory()
		}, lost: "has no state, but "},
		{name: "a marker that cannot be read beside its store", do: func(s *site) { s.start(); s.write(s.inFolder, "{") }},
		{name: "a marker that cannot be read, and no store", do: func(s *site) {
			s.start()
			s.s = storetest.Memory()
			s.write(s.inFolder, "{")
			s.remove(s.besideLab)
		}, lost: "has no state, but "},
		{name: "a loss that nobody accepted, after a restart", do: func(s *site) { s.start(); s.s = storetest.Memory(); s.start() }, lost: "is another one than "},
		{name: "a loss that was accepted", do: func(s *site) {
			s.start()
			s.s = storetest.Memory()
			s.accept()
		}},
		{name: "a loss that was accepted, and markers that could not be written", do: func(s *site) {
			s.start()
			old, err := os.ReadFile(s.besideLab)
			if err != nil {
				s.t.Fatal(err)
			}
			s.s = storetest.Memory()
			s.accept()
			s.write(s.besideLab, string(old))
		}},
		{name: "the lost store comes back after the loss was accepted", do: func(s *site) {
			s.start()
			old := s.s
			s.s = storetest.Memory()
			s.accept()
			s.s = old
		}, lost: "is another one than "},
		{name: "the lost store comes back before", do: func(s *site) {
			s.start()
			old := s.s
			s.s = storetest.Memory()
			s.start()
			s.s = old
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			tt.do(s)
			id := s.find()
			if got := id.Lost(); got != tt.lost && (tt.lost == "" || !strings.Contains(got, tt.lost)) || id.First() != tt.first {
				t.Errorf("lost %q, first %v; want %q, %v", got, id.First(), tt.lost, tt.first)
			}
		})
	}
}

// damaged is a store that has lost a change of its name.
type damaged struct{ store.Store }

func (damaged) Doubtful(key string) bool { return key == identity.Key }

// advance is an install.
func (s *site) advance(id *identity.Identity) {
	s.t.Helper()
	if err := id.Advance(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) read(path string) string {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// TestRemovedMarker: a marker that was removed while its store is in use is reported, until it is written again.
func TestRemovedMarker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.start()
	s.remove(s.inFolder)
	id.Look()
	if ms := id.Markers(); ms[0].Err == nil || !strings.Contains(ms[0].Err.Error(), "was removed") || ms[1].Err != nil {
		t.Errorf("markers: %v", ms)
	}
	s.advance(id)
	id.Look()
	if ms := id.Markers(); ms[0].Err != nil {
		t.Errorf("markers after another install: %v", ms)
	}
}

// TestBack: a lost state that is back in its place is known by its marker.
func TestBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	marker := s.read(s.inFolder)
	s.s = storetest.Memory()
	s.remove(s.inFolder)
	id := s.start()
	if back, err := id.Back(s.inFolder); back || err != nil {
		t.Errorf("a folder without a marker: %v, %v", back, err)
	}
	s.write(s.inFolder, marker)
	if back, err := id.Back(s.inFolder); !back || err != nil {
		t.Errorf("the marker of the lost state: %v, %v", back, err)
	}
	other := newSite(t)
	other.start()
	if back, err := id.Back(other.inFolder); back || err != nil {
		t.Errorf("the marker of another state: %v, %v", back, err)
	}
}

// TestExpected: without a look into the database it is known that a start would find it lost.
func TestExpected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(s *site, db string)
		want string // part; empty: nothing is lost
	}{
		{"before a first start", func(*site, string) {}, ""},
		{"a state", func(s *site, db string) { s.start(); s.write(db, "content") }, ""},
		{"no state file", func(s *site, _ string) { s.start() }, "has no state, but "},
		{"an empty state file", func(s *site, db string) { s.start(); s.write(db, "") }, "has no state, but "},
		{"an emptied folder", func(s *site, _ string) { s.start(); s.remove(s.inFolder) }, "has no state, but "},
		{"an empty file beside the lab", func(s *site, _ string) { s.write(s.besideLab, "") }, ""},
		{"the same, and what a daemon has left", func(s *site, _ string) { s.write(s.besideLab, ""); s.left = "/state/consoles" }, "has no state, but /state/consoles shows "},
		{"a state, and what its daemon has made", func(s *site, db string) { s.start(); s.write(db, "content"); s.left = "/state/consoles" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			db := filepath.Join(filepath.Dir(s.inFolder), "state.db")
			tt.do(s, db)
			if got := identity.Expected(db, s.left, s.inFolder, s.besideLab); got != tt.want && (tt.want == "" || !strings.Contains(got, tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// restore replaces the store by one from a backup with that name.
func (s *site) restore(saved []byte) {
	s.t.Helper()
	value, err := identity.Restored(saved)
	if err != nil {
		s.t.Fatal(err)
	}
	s.s = storetest.Memory()
	if err := s.s.Commit(s.t.Context(), store.Put(identity.Key, value)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) accept() {
	s.t.Helper()
	if err := s.start().Accept(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// TestAcceptIsOneCommit: what is accepted is stored together with the name, or not at all.
// TestStartThatFails: a first start that ends after it has written something, as one that meets a port in use, is no damage to the next one.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.hosts = []string{"52-54-00-00-00-01"}
	for range 2 {
		if id := s.find(); !id.First() || id.Lost() != "" {
			t.Fatalf("first %v, lost %q, want the first start", id.First(), id.Lost())
		}
		if err := s.s.Commit(t.Context(), store.Txn{Then: []store.Op{{Key: "something", Value: []byte("{}")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if id := s.start(); id.Lost() != "" {
		t.Errorf("lost: %q", id.Lost())
	}
}

func TestAcceptIsOneCommit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	s.s = storetest.Memory()
	s.put("loss")
	id := s.start()
	if err := id.Accept(t.Context(), store.Op{Key: ""}); err == nil || id.Lost() == "" {
		t.Errorf("a commit that fails: %v, lost %q", err, id.Lost())
	}
	if err := id.Accept(t.Context(), store.Op{Key: "loss", Delete: true}); err != nil || id.Lost() != "" {
		t.Errorf("accept: %v, lost %q", err, id.Lost())
	}
	if _, err := s.s.Get(t.Context(), "loss"); err == nil {
		t.Error("the other write is missing")
	}
}

// TestMarkersOfAReadOnlyFolder: a marker that cannot be written is reported, and the other one is enough to notice a loss.
func TestMarkersOfAReadOnlyFolder(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "mount")
	s := newSite(t)
	dir := filepath.Dir(s.besideLab)
	netns.Run(t, "mount", "-t", "tmpfs", "-o", "ro", "none", dir)
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	ms := s.start().Markers()
	if ms[0].Err != nil || ms[1].Err == nil || !strings.Contains(ms[1].Err.Error(), "read-only file system") {
		t.Errorf("markers: %v", ms)
	}
	s.s = storetest.Memory()
	if s.find().Lost() == "" {
		t.Error("the loss is not noticed")
	}
}

// TestMarkerIsNoWayToOtherFiles: a link in the place of a marker is replaced, not followed.
func TestMarkerIsNoWayToOtherFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	s.remove(s.besideLab)
	other := filepath.Join(t.TempDir(), "other")
	s.write(other, "precious")
	if err := os.Symlink(other, s.besideLab); err != nil {
		t.Fatal(err)
	}
	s.start()
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("the other file has %q, %v", text, err)
	}
	if info, err := os.Lstat(s.besideLab); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the marker is %v, %v", info, err)
	}
}

func TestBesideLab(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for lab, want := range map[string]string{dir: dir + "/.bootlab-state", dir + "/lab.yaml": dir + "/.lab.yaml.bootlab-state", "lab.yaml": here + "/.lab.yaml.bootlab-state"} {
		if got := identity.BesideLab(lab); got != want {
			t.Errorf("beside %s: %s, want %s", lab, got, want)
		}
	}
}

// TestMovedLab: a lab that was renamed, or is a folder or a link now, and has no state, finds the marker that it left by its hosts. Another lab in
// the folder is not taken for it.
func TestMovedLab(t *testing.T) {
	t.Parallel()
	ours, theirs := []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, []string{"52:54:00:00:00:03"}
	for _, tt := range []struct {
		name  string
		hosts []string // of the lab now
		lab   func(t *testing.T, dir string) string
		lost  bool
	}{
		{"renamed", ours[1:], func(t *testing.T, dir string) string { return filepath.Join(dir, "prod.yaml") }, true},
		{"a folder", ours, func(t *testing.T, dir string) string { return mkdir(t, filepath.Join(dir, "lab.d")) }, true},
		{"a link elsewhere", ours, func(t *testing.T, dir string) string {
			if err := os.WriteFile(filepath.Join(dir, "lab.yaml"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(mkdir(t, filepath.Join(dir, "..", "etc")), "current.yaml")
			if err := os.Symlink(filepath.Join(dir, "lab.yaml"), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, true},
		{"another lab", theirs, func(t *testing.T, dir string) string { return filepath.Join(dir, "other.yaml") }, false},
		{"no hosts", nil, func(t *testing.T, dir string) string { return filepath.Join(dir, "empty.yaml") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.hosts = ours
			s.start()
			old := s.besideLab
			s.hosts, s.s = tt.hosts, storetest.Memory()
			s.remove(s.inFolder)
			s.besideLab = identity.BesideLab(tt.lab(t, filepath.Dir(old)))
			id := s.find()
			if got := id.Lost(); tt.lost != strings.Contains(got, old+" shows that there was one") || tt.lost == id.First() {
				t.Errorf("lost %q, first start %t", got, id.First())
			}
			s.accept()
			if id := s.find(); id.Lost() != "" {
				t.Errorf("lost after it was accepted: %s", id.Lost())
			}
		})
	}
}

// TestDanglingMarker: a link to nothing in the place of a marker shows that there was one.
func TestDanglingMarker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := os.Symlink("/nowhere", s.besideLab); err != nil {
		t.Fatal(err)
	}
	if id := s.find(); id.Lost() == "" || id.First() {
		t.Error("it is taken for a first start")
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
