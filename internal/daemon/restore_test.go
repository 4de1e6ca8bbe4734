package daemon

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/internal/store/identity"
)

// TestRestoreNow: a host without a record is armed now, as bootlab hosts says, unless the state has lost something or there is none.
func TestRestoreNow(t *testing.T) {
	t.Parallel()
	name, err := identity.Restored(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{Name: "t", Hosts: []*lab.Host{{Name: "a", Profile: &lab.Profile{Name: "p", Install: lab.InstallOnce}}}}
	l.Index()
	b := &backup.Backup{Entries: []backup.Entry{{Key: install.RecordKey("a"), Value: []byte(`{"state":"installed"}`)}}}
	b.Lab, b.Created = "t", time.Now()
	for _, tt := range []struct {
		name string
		now  map[string][]byte
		want string
	}{
		{"it never booted", map[string][]byte{identity.Key: name}, "armed"},
		{"no state", nil, ""},
		{"a loss that nobody has accepted", map[string][]byte{identity.Key: name, install.LostKey: []byte("{}")}, ""},
		{"a damaged file", map[string][]byte{identity.Key: name, "store/loss/1": []byte("{}")}, ""},
	} {
		r, err := PlanRestore(l, b, tt.now, HoldHosts)
		if err != nil || len(r.Hosts) != 1 || r.Hosts[0].Now != tt.want || r.Hosts[0].After != "installed" {
			t.Errorf("%s: %+v, %v, want %q now", tt.name, r, err, tt.want)
		}
	}
}
