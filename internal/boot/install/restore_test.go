package install

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestMerge: a restore never makes a host that is installed once one that its next boot installs, unless that was asked for.
func TestMerge(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	host := func(i lab.InstallMode) *lab.Host {
		return &lab.Host{Name: "a", Profile: &lab.Profile{Name: "p", Install: i}}
	}
	once, always, live, gone := host(lab.InstallOnce), host(lab.InstallAlways), host(lab.InstallNever), (*lab.Host)(nil)
	none := Status{}
	in := func(s State) Status {
		return Status{State: s, Tokens: []sum{"x"}, Requested: &requested{}, Attempts: 2}
	}
	held := Status{State: Booting, Held: true}
	for _, tt := range []struct {
		name       string
		h          *lab.Host
		saved, now Status
		after      string
		armed      string // after, with ArmHosts
	}{
		{"installed in both", once, in(Installed), in(Installed), "installed", "installed"},
		{"installed in the backup, armed now", once, in(Installed), in(Armed), "installed", "installed"},
		{"installed in the backup, state lost", once, in(Installed), none, "installed", "installed"},
		{"installed since", once, in(Armed), in(Installed), "installed", "installed"},
		{"installed since, not in the backup", once, none, in(Installed), "installed", "installed"},
		{"armed in both", once, in(Armed), in(Armed), "held", "armed"},
		{"armed in the backup, state lost", once, in(Armed), none, "held", "armed"},
		{"under way in the backup", once, in(Installing), none, "held", "armed"},
		{"held in the backup", once, held, none, "held", "held"},
		{"in neither", once, none, none, "held", "armed"},
		{"live in the backup, installs today", once, in(Live), none, "held", "armed"},
		{"no host any more, armed", gone, in(Armed), none, "held", "armed"},
		{"no host any more, installed since", gone, none, in(Installed), "installed", "installed"},
		{"no host any more, live", gone, in(Live), none, "live", "live"},
		{"no host any more, only armed now", gone, none, in(Armed), "", ""},
		{"installs at every boot", always, in(Installed), in(Armed), "installed", "installed"},
		{"installs at every boot, under way", always, in(Booting), none, "armed", "armed"},
		{"installs at every boot, not in the backup", always, none, in(Armed), "", ""},
		{"live", live, in(Live), in(Live), "live", "live"},
		{"live, not in the backup", live, none, none, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			record := func(s Status) []byte {
				if s.State == "" {
					return nil
				}
				b, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			for r, want := range map[Rearm]string{HoldHosts: tt.after, ArmHosts: tt.armed} {
				m, err := Merge("a", tt.h, record(tt.saved), record(tt.now), made, r)
				if err != nil || m.After != want || m.Arms() != (want == "armed") {
					t.Errorf("%d: %+v, %v; want %q", r, m, err, want)
				}
				if (m.Record == nil) != (want == "") || strings.Contains(string(m.Record), "tokens") || strings.Contains(string(m.Record), "requested") {
					t.Errorf("%d: record %s", r, m.Record)
				}
				if m.Record == nil {
					continue
				}
				s, err := decode("a", m.Record)
				if err != nil || s.label() != want || s.underWay() && s.State != Live {
					t.Errorf("%d: it is read back as %+v, %v", r, s, err)
				}
				if s.HeldByRestore() && !strings.HasSuffix(s.Note("a"), ": bootlab install a --done if it has a system, else bootlab install a, which overwrites its disk") {
					t.Errorf("%d: note %q", r, s.Note("a"))
				}
				if tt.h == once && want != "armed" && !s.localBoot(tt.h) {
					t.Errorf("%d: its next boot installs it: %+v", r, s)
				}
			}
		})
	}
}

// TestMergeDamage: a record of the backup that cannot be read is an error; one of the store that is replaced is not.
func TestMergeDamage(t *testing.T) {
	t.Parallel()
	h := &lab.Host{Name: "a", Profile: &lab.Profile{Install: lab.InstallOnce}}
	if m, err := Merge("a", h, []byte("{"), nil, time.Time{}, HoldHosts); err == nil {
		t.Errorf("%+v", m)
	}
	if m, err := Merge("a", h, nil, []byte("{"), time.Time{}, HoldHosts); err != nil || m.After != "held" {
		t.Errorf("%+v, %v", m, err)
	}
}
