package daemon

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestWhichChecksCount: the state of a machine and the diagnosis of its boot count the same checks, those of drained backends among them.
func TestWhichChecksCount(t *testing.T) {
	t.Parallel()
	c, mem := newClusters(t), storetest.Memory()
	var err error
	if c.installs, err = install.Open(t.Context(), install.Config{}, install.Deps{Store: mem, Events: event.NewBus(event.BusConfig{Now: time.Now}), Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if c.timeline, err = timeline.Open(t.Context(), timeline.Config{}, timeline.Deps{Store: mem, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	prod := &lab.Cluster{Name: "prod", Kind: lab.Kubernetes}
	for _, tt := range []struct {
		name     string
		cluster  *lab.Cluster
		balancer string
		drained  bool
		want     bool
	}{
		{"of no cluster", nil, "web", false, true},
		{"of no cluster, drained", nil, "web", true, false},
		{"the API of a cluster", prod, prod.BalancerOf(lab.ServiceAPI), false, true},
		{"the API of a cluster, drained", prod, prod.BalancerOf(lab.ServiceAPI), true, true},
		{"the ingress of a cluster", prod, prod.BalancerOf(lab.ServiceIngress), false, false},
	} {
		h := &lab.Host{Name: "a", Role: lab.RoleControlPlane, Cluster: tt.cluster}
		check := backendCheck{machine.Check{Health: machine.CheckFailing, Reason: "connection refused"}, tt.drained}
		now := seen{checks: map[string]map[string]backendCheck{"a": {tt.balancer: check}}}
		state := c.observation(h, now).Check.Health == machine.CheckFailing
		diagnosis := len(c.machine(h, machine.State{}, now).Checks) == 1
		if state != tt.want || diagnosis != tt.want {
			t.Errorf("%s: counts for the state: %v, for the diagnosis: %v; want %v", tt.name, state, diagnosis, tt.want)
		}
	}
}
