package daemon

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func newClusters(t *testing.T) *clusters {
	t.Helper()
	mem := storetest.Memory()
	d := &Daemon{log: slog.New(slog.DiscardHandler), learned: &learned{store: mem, saver: newSaver(mem)}}
	c, err := d.openClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClusterRecord: machines that are switched on while the bootstrap leaves are all recorded, in memory and in the store.
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
		if err := c.update("prod", func(r *cluster.Record) { r.Left = time.Now() }); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	again, err := c.openClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for where, r := range map[string]cluster.Record{"memory": c.record("prod"), "store": again.record("prod")} {
		if len(r.Switched) != len(hosts) || r.Left.IsZero() {
			t.Errorf("in %s: %d of %d machines, left %s", where, len(r.Switched), len(hosts), r.Left)
		}
	}
}

// TestSwitchOffMetal: a bootstrap of metal is switched off by its controller, and it is no longer recorded as switched on.
func TestSwitchOffMetal(t *testing.T) {
	t.Parallel()
	resets := make(chan string, 8)
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			var reset struct{ ResetType string }
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &reset); err != nil {
				t.Error(err)
			}
			resets <- reset.ResetType
		case strings.HasSuffix(r.URL.Path, "/Systems"):
			_, _ = io.WriteString(w, `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`)
		default:
			_, _ = io.WriteString(w, `{"PowerState": "On", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`)
		}
	}))
	defer controller.Close()
	c := newClusters(t)
	boot := &lab.Host{Name: "boot", Role: lab.RoleBootstrap, BMC: &lab.BMC{Redfish: controller.URL}}
	prod := &lab.Cluster{Name: "prod", Kind: lab.OpenShift, Hosts: []*lab.Host{boot}}
	if err := c.noteSwitched("prod", "boot", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.do(t.Context(), prod, cluster.Action{Verb: cluster.SwitchOff, Host: boot}); err != nil {
		t.Fatal(err)
	}
	if got := <-resets; got != "ForceOff" || len(resets) > 0 {
		t.Errorf("the controller got %s, and %d more", got, len(resets))
	}
	if at, ok := c.record("prod").Switched["boot"]; ok {
		t.Errorf("still recorded as switched on at %s", at)
	}
}
