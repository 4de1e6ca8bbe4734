package install_test

import (
	"context"
	"errors"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// machine is a host that is installed once.
func machine(name string, macs ...byte) *lab.Host {
	h := &lab.Host{Name: name, Profile: &lab.Profile{Name: "p", Install: lab.InstallOnce}}
	for _, last := range macs {
		h.MACs = append(h.MACs, lab.MAC{0x52, 0x54, 0, 0, 0, last})
	}
	return h
}

// TestFollow has labs with the same machines under other names. Nothing that is installed is armed, and nothing that is new counts as
// installed.
func TestFollow(t *testing.T) {
	tests := []struct {
		name          string
		before, after []*lab.Host
		want          map[string]install.State // of a lab in which one is installed, and two was armed
		moves         int
	}{
		{"renamed", []*lab.Host{machine("one", 1)}, []*lab.Host{machine("other", 1)}, map[string]install.State{"other": install.Installed}, 1},
		{"names exchanged", []*lab.Host{machine("one", 1), machine("two", 2)}, []*lab.Host{machine("one", 2), machine("two", 1)},
			map[string]install.State{"one": install.Armed, "two": install.Installed}, 2},
		{"a new machine gets the name", []*lab.Host{machine("one", 1)}, []*lab.Host{machine("one", 3), machine("other", 1)},
			map[string]install.State{"one": install.Armed, "other": install.Installed}, 1},
		{"network card replaced", []*lab.Host{machine("one", 1)}, []*lab.Host{machine("one", 3)}, map[string]install.State{"one": install.Installed}, 0},
		{"network card added", []*lab.Host{machine("one", 1)}, []*lab.Host{machine("one", 3, 1)}, map[string]install.State{"one": install.Installed}, 0},
		{"renamed, with another card", []*lab.Host{machine("one", 1, 2)}, []*lab.Host{machine("other", 2, 3)}, map[string]install.State{"other": install.Installed}, 1},
		{"the same", []*lab.Host{machine("one", 1), machine("two", 2)}, []*lab.Host{machine("one", 1), machine("two", 2)},
			map[string]install.State{"one": install.Installed, "two": install.Armed}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			for _, h := range test.before {
				mark := r.MarkInstalled
				if h.Name == "two" {
					mark = r.Arm
				}
				if err := mark(t.Context(), h); err != nil {
					t.Fatal(err)
				}
			}
			moves, done, err := r.Follow(t.Context(), test.after)
			if err != nil || len(moves) != test.moves {
				t.Fatalf("moves %+v, %v, want %d", moves, err, test.moves)
			}
			for _, h := range test.before { // until the new lab is in use
				if h.Name == "one" && !r.FromDisk(h, lab.MAC{}) {
					t.Error("the lab before would install one")
				}
			}
			done()
			for range 2 {
				for _, h := range test.after {
					if got := r.Status(h); got.State != test.want[h.Name] {
						t.Errorf("%s is %+v, want %s", h.Name, got, test.want[h.Name])
					}
				}
				if _, ok := r.All()["one"]; ok && test.name == "renamed" {
					t.Error("the state is still under the name that was left, too")
				}
				r.reopen()
			}
			if moves, _, err := r.Follow(t.Context(), test.after); len(moves) > 0 || err != nil {
				t.Errorf("the same lab again: %+v, %v", moves, err)
			}
		})
	}
}

// TestFollowDeparted: an installed machine that left the lab while its name became another's, or got another MAC, is installed when it comes
// back under whatever name, also through a pool.
func TestFollowDeparted(t *testing.T) {
	for name, between := range map[string]*lab.Host{
		"another machine of the lab has its name": machine("one", 2), "a new machine has its name": machine("one", 3), "it has another name and another card": machine("other", 4),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, h := range []*lab.Host{machine("one", 1), machine("two", 2)} {
				if err := r.MarkInstalled(t.Context(), h); err != nil {
					t.Fatal(err)
				}
			}
			follow := func(hosts ...*lab.Host) {
				t.Helper()
				if _, done, err := r.Follow(t.Context(), hosts); err != nil {
					t.Fatal(err)
				} else {
					done()
				}
				r.reopen()
			}
			follow(between)
			if between.Name == "one" {
				pooled := machine(machine("", 1).MACs[0].Hyphens(), 1)
				if got := r.Status(pooled); got.State != install.Installed || !r.FromDisk(pooled, pooled.MACs[0]) {
					t.Errorf("through a pool it is %+v, want installed", got)
				}
			}
			back := machine("three", 1)
			follow(between, back)
			if got := r.Status(back); got.State != install.Installed {
				t.Errorf("it is %+v, want installed", got)
			}
			if got := r.Status(between); between.Name == "one" && got.State != install.Installed {
				t.Errorf("%s is %+v, want installed", between.Name, got)
			}
		})
	}
}

// TestFollowDuringInstall: the installer of a host that is renamed calls back with its token.
func TestFollowDuringInstall(t *testing.T) {
	r := newRig(t)
	decision := r.boot(machine("one", 1))
	other := machine("other", 1)
	_, done, err := r.Follow(t.Context(), []*lab.Host{other})
	if err != nil {
		t.Fatal(err)
	}
	done()
	if token, err := r.Token(t.Context(), other); err != nil || token != decision.Token {
		t.Errorf("token %q, %v, want that of the boot", token, err)
	}
	if err := r.ConfigRead(t.Context(), other, decision.Token); err != nil {
		t.Error(err)
	}
	if err := r.Done(t.Context(), other, decision.Token); err != nil || r.Status(other).State != install.Installed {
		t.Errorf("%+v, %v, want installed", r.Status(other), err)
	}
}

// refusing is a store that takes no writes.
type refusing struct{ store.Store }

func (refusing) Commit(context.Context, store.Txn) error { return errors.New("disk full") }

// TestUnfollowed: an installed machine that has another name without Follow, or while the disk takes no writes, is not new.
func TestUnfollowed(t *testing.T) {
	r := newRig(t)
	if err := r.MarkInstalled(t.Context(), machine("one", 1)); err != nil {
		t.Fatal(err)
	}
	other, new := machine("other", 1), machine("one", 3)
	good := r.store
	r.store = refusing{good}
	r.reopen()
	if _, _, err := r.Follow(t.Context(), []*lab.Host{other, new}); err == nil {
		t.Error("no error of a disk that is full")
	}
	for _, h := range []*lab.Host{other, new} {
		if got := r.Status(h); got.State != install.Unknown || !r.FromDisk(h, lab.MAC{}) {
			t.Errorf("%s is %+v, want unknown", h.Name, got)
		}
	}
	r.store = good
	r.reopen()
	if err := r.Arm(t.Context(), other); err != nil || r.Status(other).State != install.Armed {
		t.Errorf("%+v, %v, want armed by an admin", r.Status(other), err)
	}
}

// TestFollowOldRecords: states without MACs, which were stored before there were any, get those of their names.
func TestFollowOldRecords(t *testing.T) {
	r := newRig(t)
	if err := r.MarkInstalled(t.Context(), machine("one")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "other"} {
		if _, done, err := r.Follow(t.Context(), []*lab.Host{machine(name, 1)}); err != nil {
			t.Fatal(err)
		} else {
			done()
		}
	}
	if got := r.Status(machine("other", 1)); got.State != install.Installed {
		t.Errorf("%+v, want installed", got)
	}
}
