package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func newClusters(t *testing.T) *clusters {
	t.Helper()
	mem := storetest.Memory()
	bus := event.NewBus(event.BusConfig{Now: time.Now})
	d := &Daemon{
		log: slog.New(slog.DiscardHandler), bus: bus, servers: &servers{vms: vmadmin.New(vmadmin.Deps{Events: bus})},
		persistentState: &persistentState{store: mem, saver: records.NewSaver(mem)},
	}
	c, err := d.openClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClusterRecord: machines that are switched on while the bootstrap is removed are all recorded, in memory and in the store.
func TestClusterRecord(t *testing.T) {
	t.Parallel()
	c := newClusters(t)
	var wg sync.WaitGroup
	hosts := strings.Fields("a b c d e f g h i j k l m n o p")
	for _, h := range hosts {
		wg.Go(func() {
			if err := c.noteSwitched("prod", h, time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		if err := c.update("prod", func(r *cluster.Record) { r.Removed = time.Now() }); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	again, err := c.openClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for where, r := range map[string]cluster.Record{"memory": c.record("prod"), "store": again.record("prod")} {
		if len(r.Switched) != len(hosts) || r.Removed.IsZero() {
			t.Errorf("in %s: %d of %d machines, removed %s", where, len(r.Switched), len(hosts), r.Removed)
		}
	}
}

// TestAges: who was at something before a restart, and is again a moment after it, was there all the time; but not if an admin asked for
// something else in between, as down and up do.
func TestAges(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	old := cluster.Since{Is: "bootstrapping", At: started.Add(-time.Hour)}
	for _, asked := range []bool{false, true} {
		a := newAges(started)
		a.stored["prod"] = old
		a.note("prod", "down", started.Add(time.Second))
		want := old
		if asked {
			a.forget("prod")
			want.At = started.Add(2 * time.Second)
		}
		a.note("prod", "bootstrapping", started.Add(2*time.Second))
		if got := a.current["prod"]; got != want {
			t.Errorf("asked %v: %+v, want %+v", asked, got, want)
		}
		if got := a.toStore("prod", started.Add(3*time.Second)); got != want {
			t.Errorf("asked %v: stored is %+v, want %+v", asked, got, want)
		}
	}
}

// A controller is the Redfish service of one machine.
type controller struct {
	*httptest.Server
	dead   atomic.Bool
	resets chan string // their types
}

// newController returns one that says of its machine's power what state is.
func newController(t *testing.T, state string) *controller {
	t.Helper()
	c := &controller{resets: make(chan string, 8)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case c.dead.Load():
			w.WriteHeader(http.StatusInternalServerError)
		case r.Method == http.MethodPost:
			var reset struct{ ResetType string }
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &reset); err != nil {
				t.Error(err)
			}
			c.resets <- reset.ResetType
		case strings.HasSuffix(r.URL.Path, "/Systems"):
			_, _ = io.WriteString(w, `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`)
		default:
			_, _ = io.WriteString(w, `{"PowerState": "`+state+`", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// prodOf returns a cluster of one machine with that controller.
func prodOf(name, role string, c *controller) (*lab.Cluster, *lab.Host) {
	h := &lab.Host{Name: name, Role: role, BMC: &lab.BMC{Redfish: c.URL}}
	return &lab.Cluster{Name: "prod", Kind: lab.OpenShift, Hosts: []*lab.Host{h}}, h
}

// TestSwitchOnMetal: a controller that is dead makes a failed action; once it answers, a machine that is off is switched on, and one that is on
// meanwhile is left alone.
func TestSwitchOnMetal(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]int{"Off": 1, "On": 0} {
		bmc, c := newController(t, state), newClusters(t)
		bmc.dead.Store(true)
		prod, h := prodOf("cp0", lab.RoleControlPlane, bmc)
		if err := c.do(t.Context(), prod, cluster.Action{Verb: cluster.SwitchOn, Host: h}); err == nil {
			t.Error("a dead controller switched the machine on")
		}
		bmc.dead.Store(false)
		if err := c.do(t.Context(), prod, cluster.Action{Verb: cluster.SwitchOn, Host: h}); err != nil || len(bmc.resets) != want {
			t.Errorf("the machine is %s: %v, %d resets, want %d", state, err, len(bmc.resets), want)
		}
	}
}

// TestSwitchOnInstalledMetal: a machine that is not to be installed is asked for first. Where it is on, it is left alone, and known to run.
func TestSwitchOnInstalledMetal(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]int{"Off": 1, "On": 0} {
		bmc, c := newController(t, state), newClusters(t)
		prod, h := prodOf("cp0", lab.RoleControlPlane, bmc)
		if err := c.do(t.Context(), prod, cluster.Action{Verb: cluster.SwitchOnIfOff, Host: h}); err != nil || len(bmc.resets) != want {
			t.Errorf("the machine is %s: %v, %d resets, want %d", state, err, len(bmc.resets), want)
		}
		if on := !c.foundOn("cp0").IsZero(); on != (state == "On") {
			t.Errorf("the machine is %s: found on: %t", state, on)
		}
	}
}

// TestSwitchOffMetal: a bare-metal bootstrap is switched off by its controller, and it is no longer recorded as switched on.
func TestSwitchOffMetal(t *testing.T) {
	t.Parallel()
	bmc, c := newController(t, "On"), newClusters(t)
	prod, boot := prodOf("boot", lab.RoleBootstrap, bmc)
	if err := c.noteSwitched("prod", "boot", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.do(t.Context(), prod, cluster.Action{Verb: cluster.SwitchOff, Host: boot}); err != nil {
		t.Fatal(err)
	}
	if got := <-bmc.resets; got != "ForceOff" || len(bmc.resets) > 0 {
		t.Errorf("the controller got %s, and %d more", got, len(bmc.resets))
	}
	if at, ok := c.record("prod").Switched["boot"]; ok {
		t.Errorf("still recorded as switched on at %s", at)
	}
}

// TestBootstrapLeavesAfterReload: the bootstrap is drained in the balancers of its cluster, also where a reload came after it was decided.
func TestBootstrapLeavesAfterReload(t *testing.T) {
	t.Parallel()
	bmc, c := newController(t, "On"), newClusters(t)
	before, boot := prodOf("boot", lab.RoleBootstrap, bmc)
	after, same := prodOf("boot", lab.RoleBootstrap, bmc)
	c.current.Store(&snapshot.Snapshot{Lab: &lab.Lab{Balancers: []*lab.Balancer{
		{Name: "api", Cluster: after, Backends: []lab.Backend{{Name: "boot", Host: same}}}, {Name: "other", Backends: []lab.Backend{{Name: "boot", Host: same}}},
	}}})
	var drained []string
	drain := func(_ context.Context, balancer, backend string) ([]lbproxy.BackendStatus, error) {
		drained = append(drained, balancer+"/"+backend)
		return nil, nil
	}
	if err := c.removeBootstrap(t.Context(), before, boot, drain, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(drained, " "); got != "api/boot" || c.record("prod").Removed.IsZero() {
		t.Errorf("drained %q, removed %s; want api/boot", got, c.record("prod").Removed)
	}
}

// TestUpWithoutHosts: a cluster that no host belongs to cannot come up, nor can one without a control plane.
func TestUpWithoutHosts(t *testing.T) {
	t.Parallel()
	for _, kind := range []lab.ClusterKind{lab.OpenShift, lab.Kubernetes, lab.Talos} {
		err := newClusters(t).mayComeUp(nil, &lab.Cluster{Name: "prod", Kind: kind})
		if err == nil || !strings.Contains(err.Error(), "prod has no hosts") {
			t.Errorf("%s: %v", kind, err)
		}
		err = newClusters(t).mayComeUp(nil, &lab.Cluster{Name: "prod", Kind: kind, Hosts: []*lab.Host{{Name: "w", Role: lab.RoleWorker}}})
		if err == nil || !strings.Contains(err.Error(), "prod has no control plane") {
			t.Errorf("%s with a worker: %v", kind, err)
		}
	}
}
