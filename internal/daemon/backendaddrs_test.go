package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestLookupOfLoopback: a name that leads to this machine is refused, also where the system's resolver is asked.
func TestLookupOfLoopback(t *testing.T) {
	t.Parallel()
	d := &Daemon{}
	d.current.Store(&snapshot.Snapshot{Lab: &lab.Lab{}})
	addrs, _, err := backendAddresses{d}.Lookup(t.Context(), "localhost")
	if err == nil || !strings.Contains(err.Error(), "is not that of another machine") {
		t.Errorf("localhost: %v, error %v", addrs, err)
	}
}

// TestLookupOfSystem: what the system's resolver answers holds no longer than the shortest TTL that counts.
func TestLookupOfSystem(t *testing.T) {
	t.Parallel()
	d := &Daemon{}
	d.current.Store(&snapshot.Snapshot{Lab: &lab.Lab{}})
	addrs, ttl, err := backendAddresses{d}.resolve(t.Context(), "localhost")
	if err != nil || len(addrs) == 0 || ttl > 5*time.Second {
		t.Errorf("localhost: %v for %s, error %v", addrs, ttl, err)
	}
}

// TestAddressesOf: CNAMEs are followed, the lowest TTL of the way counts, and records of other names are none of the answer.
func TestAddressesOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
		ttl   time.Duration
	}{
		{"nothing", nil, nil, 0},
		{"addresses", []string{"R.example. 60 IN A 10.0.0.1", "r.example. 50 IN AAAA fd00::1"}, []string{"10.0.0.1", "fd00::1"}, 50 * time.Second},
		{"by a CNAME", []string{"r.example. 5 IN CNAME x.example.", "x.example. 60 IN A 10.0.0.1"}, []string{"10.0.0.1"}, 5 * time.Second},
		{"glue", []string{"r.example. 60 IN A 10.0.0.1", "example. 60 IN NS ns.example.", "ns.example. 5 IN A 10.0.0.9"}, []string{"10.0.0.1"}, time.Minute},
		{"no address", []string{"example. 60 IN SOA ns.example. root.example. 1 2 3 4 5"}, nil, 0},
	} {
		addrs, ttl := addressesOf("r.Example", c.lines)
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		if !slices.Equal(got, c.want) || ttl != c.ttl {
			t.Errorf("%s: %v for %s, want %v for %s", c.name, got, ttl, c.want, c.ttl)
		}
	}
}
