package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestDropsMost: a lab that lost more than half of its hosts, balancers, zones, networks or clusters is refused, each of them counted alone.
func TestDropsMost(t *testing.T) {
	t.Parallel()
	of := func(hosts, balancers, zones, networks, clusters int) *lab.Lab {
		l := &lab.Lab{}
		for i := range hosts {
			l.Hosts = append(l.Hosts, &lab.Host{Name: fmt.Sprint("h", i)})
		}
		l.Index()
		for range balancers {
			l.Balancers = append(l.Balancers, &lab.Balancer{})
		}
		l.Networks, l.Clusters = make([]*lab.Network, networks), make([]*lab.Cluster, clusters)
		for range clusters { // derived ones do not count
			l.Balancers = append(l.Balancers, &lab.Balancer{Cluster: &lab.Cluster{}}, &lab.Balancer{Cluster: &lab.Cluster{}})
		}
		for range zones {
			l.Zones = append(l.Zones, &lab.Zone{})
		}
		l.Zones = append(l.Zones, &lab.Zone{Derived: true}, &lab.Zone{Derived: true}, &lab.Zone{Derived: true})
		return l
	}
	machines := func(names ...string) *lab.Lab { // one MAC for each place in the list
		l := &lab.Lab{}
		for i, name := range names {
			l.Hosts = append(l.Hosts, &lab.Host{Name: name, MACs: []lab.MAC{{2, byte(i)}}})
		}
		l.Index()
		return l
	}
	for _, tt := range []struct {
		name          string
		before, after *lab.Lab
		want          string // in the error
	}{
		{"the same", of(4, 4, 4, 4, 4), of(4, 4, 4, 4, 4), ""},
		{"half of each", of(4, 4, 4, 4, 4), of(2, 2, 2, 2, 2), ""},
		{"none before", of(0, 0, 0, 0, 0), of(4, 4, 4, 4, 4), ""},
		{"hosts", of(4, 4, 4, 4, 4), of(1, 4, 4, 4, 4), "hosts (1 of 4 are left)"},
		{"balancers", of(4, 4, 4, 4, 4), of(4, 0, 4, 4, 4), "balancers (0 of 4 are left)"},
		{"zones", of(4, 4, 4, 4, 4), of(4, 4, 1, 4, 4), "zones (1 of 4 are left)"},
		{"networks", of(4, 4, 4, 3, 4), of(4, 4, 4, 1, 4), "networks (1 of 3 are left)"},
		{"clusters", of(4, 4, 4, 4, 3), of(4, 4, 4, 4, 1), "clusters (1 of 3 are left)"},
		{"one or two of a kind", of(4, 2, 2, 2, 2), of(4, 0, 0, 0, 0), ""},
		{"hosts with other names", machines("a", "b", "c"), machines("x", "b", "y"), ""},
		{"a host with another name and others dropped", machines("a", "b", "c"), machines("x"), "hosts (1 of 3 are left)"},
		{"a host with another MAC", machines("a"), machines("x", "a"), ""},
		{"one host with the MAC of one and the name of another", machines("a", "b", "c"), machines("b"), "hosts (1 of 3 are left)"},
		{"the only host", of(1, 4, 4, 4, 4), of(0, 4, 4, 4, 4), "hosts (0 of 1 are left)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := dropsMost(tt.before, tt.after)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, errForce) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
