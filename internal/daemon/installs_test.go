package daemon

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestInstallNow: what a controller refuses leaves its host armed, and the error says so; a power cycle is an event.
func TestInstallNow(t *testing.T) {
	t.Parallel()
	broken := false
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && broken {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, `{"PowerState":"On"}`)
	}))
	defer controller.Close()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, interface: br0}}
profiles: {p: {os: coreos, kernel: k, config: c.ign, install_to: /dev/vda}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.9, profile: p, bmc: {redfish: "`+controller.URL+`/redfish/v1/Systems/1"}}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.10, profile: p}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	heard := &tape{}
	bus := event.NewBus(event.BusConfig{Now: time.Now, Recorders: []event.Recorder{heard}})
	installs, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: storetest.Memory(), Events: bus, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	d := withStore(t, &Daemon{persistentState: &persistentState{installs: installs}, servers: &servers{vms: vmadmin.New(vmadmin.Deps{Events: bus})}, bus: bus, loops: bootloop.New(time.Now)})
	d.current.Store(&snapshot.Snapshot{Lab: l})
	c := &adminBackend{d}
	for _, tt := range []struct {
		host   string
		broken bool
		err    string
		state  install.State
		events []event.Kind
	}{
		{"a", false, "", install.Armed, []event.Kind{event.InstallArmed, event.PowerCycled}},
		{"a", true, "a is armed, but was not power-cycled: controller " + controller.URL + "/redfish/v1/Systems/1: set the next boot to Pxe: 409 Conflict", install.Armed,
			[]event.Kind{event.InstallArmed, event.PowerCycleFailed}},
		{"b", false, "b is no virtual machine and has no bmc, so nothing can power-cycle it", install.Armed, nil},
		{"c", false, `no host "c"`, "", nil},
	} {
		broken, heard.kinds = tt.broken, nil
		a, err := c.Install(t.Context(), tt.host, api.CycleNow)
		if tt.err == "" && (err != nil || !a.Cycled) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %+v, %v; want %q", tt.host, a, err, tt.err)
		}
		if h := l.Host(tt.host); h != nil && installs.Status(h).State != tt.state {
			t.Errorf("%s is %s", tt.host, installs.Status(h).State)
		}
		if diff := cmp.Diff(tt.events, heard.kinds); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", tt.host, diff)
		}
	}
}

// A tape is a recorder that keeps the kinds it hears.
type tape struct{ kinds []event.Kind }

func (t *tape) Record(e event.Event) { t.kinds = append(t.kinds, e.Kind) }
