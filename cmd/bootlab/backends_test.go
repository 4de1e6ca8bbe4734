package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

// TestRedirectingBalancer: a balancer without backends redirects. It is listed as such, and nothing is counted.
func TestRedirectingBalancer(t *testing.T) {
	t.Parallel()
	if rows := balancerRows([]api.BalancerHealth{{Name: "plain", Listen: "10.1.0.1:80"}}); rows[0][2] != "redirects" {
		t.Errorf("status: %q", rows)
	}
	cmd, out := root(), new(bytes.Buffer)
	cmd.SetOut(out)
	err := balancersText(cmd, []api.Balancer{{Name: "plain", Listen: "10.1.0.1:80"}, {Name: "web", Listen: "10.1.0.1:443", Backends: []api.Backend{{Name: "a", Addr: "10.1.0.2:80", State: api.BackendUp, Weight: 1}}}})
	step{args: "backend list", out: []string{"plain 10.1.0.1:80 - - redirects", "web 10.1.0.1:443 a 10.1.0.2:80 up 1"}}.check(t, answer{out: out.String(), err: err})
}

// TestBackendListOf: backend list BALANCER shows that one, and names the nearest of one that does not exist.
func TestBackendListOf(t *testing.T) {
	t.Parallel()
	all := []api.Balancer{{Name: "web"}, {Name: "db"}, {Name: "plain"}}
	got, err := balancersNamed(slices.Clone(all), []string{"db", "web", "db"})
	if err != nil || len(got) != 2 || got[0].Name != "web" || got[1].Name != "db" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := balancersNamed(all, nil); err != nil || len(got) != 3 {
		t.Errorf("without a name: %v, %v", got, err)
	}
	if _, err := balancersNamed(all, []string{"wbe"}); err == nil || err.Error() != `no balancer "wbe" in the lab; did you mean web?` {
		t.Errorf("another: %v", err)
	}
}
