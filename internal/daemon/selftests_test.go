package daemon

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestSelfTests: each server is asked, balancers included.
func TestSelfTests(t *testing.T) {
	t.Parallel()
	d := &Daemon{servers: &servers{}}
	d.current.Store(&snapshot.Snapshot{Lab: &lab.Lab{}})
	var got []string
	for _, test := range d.selfTests() {
		got = append(got, test.Server)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"admin", "dhcpd", "dnsd", "httpd", "lbproxy", "tftpd"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
