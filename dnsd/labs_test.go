package dnsd

import (
	"flag"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// labsDir holds the whole examples that the loader's tests load too.
const labsDir = "../internal/lab/load/testdata/labs"

func loadLab(t testing.TB, name string) *lab.Lab {
	t.Helper()
	l, err := load.Lab(filepath.Join(labsDir, name+".yaml"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLabs compares the zones of every example with its golden file.
func TestLabs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(labsDir + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no labs in %s: %v", labsDir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, err := Compile(loadLab(t, name), onDisk)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := table.WriteZones(&b); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, update, "testdata/"+name+".zones", b.String())
		})
	}
}

// TestLoadedLabs asks what the machines of two examples ask.
func TestLoadedLabs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lab, question, want string }{
		{"openshift-upi", "api-int.mycluster.example.com. A", "NOERROR aa\nan api-int.mycluster.example.com. A 192.168.131.10"},
		{"openshift-upi", "console-openshift-console.apps.mycluster.example.com. A",
			"NOERROR aa\nan console-openshift-console.apps.mycluster.example.com. A 192.168.131.10"},
		{"openshift-upi", "13.131.168.192.in-addr.arpa. PTR", "NOERROR aa\nan 13.131.168.192.in-addr.arpa. PTR worker-1.mycluster.example.com."},
		{"openshift-upi", "_etcd-server-ssl._tcp.mycluster.example.com. SRV", "NOERROR aa\nan _etcd-server-ssl._tcp.mycluster.example.com. " +
			"SRV 0 10 2380 etcd-0.mycluster.example.com.\nar etcd-0.mycluster.example.com. A 192.168.131.12"},
		{"wildcard-router", "foo.demo.kuryr.org. A", "NOERROR aa\nan foo.demo.kuryr.org. A 172.24.4.2"},
		{"wildcard-router", "foo.demo.kuryr.org. AAAA", "NOERROR aa\nns demo.kuryr.org. SOA ns.demo.kuryr.org."},
	} {
		s := newServer(t, compile(t, loadLab(t, tt.lab)), nil)
		if diff := cmp.Diff(tt.want, show(lookup(t, s, tt.question, outside))); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", tt.lab, tt.question, diff)
		}
	}
	table := compile(t, loadLab(t, "wildcard-router"))
	for addr, want := range map[string]bool{"172.24.4.9": true, "127.0.0.1": true, "::1": true, outside: false, "fe80::1": false} {
		if got := table.mayRecurse(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s may recurse: %t, want %t", addr, got, want)
		}
	}
}
