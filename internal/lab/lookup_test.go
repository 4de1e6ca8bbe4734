package lab_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]*lab.Lab{
		"0 hosts, 0 networks":              {},
		"1 host, 1 network":                {Hosts: make([]*lab.Host, 1), Networks: make([]*lab.Network, 1)},
		"2 hosts, 0 networks, 1 cluster":   {Hosts: make([]*lab.Host, 2), Clusters: make([]*lab.Cluster, 1)},
		"0 hosts, 0 networks, 3 balancers": {Balancers: make([]*lab.Balancer, 3)},
	} {
		if got := l.Summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
