package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestProgress: each step is reached by what shows it, in the boots of installers and of systems.
func TestProgress(t *testing.T) {
	t.Parallel()
	of := func(kinds ...event.Kind) (all []event.Event) {
		for _, k := range kinds {
			all = append(all, event.Event{Kind: k, Client: event.ClientPXE})
		}
		return all
	}
	os := event.Event{Kind: event.DHCPAck, Client: event.ClientOS}
	installing := append(of(event.VMStarted, event.DHCPAck, event.TFTPServed, event.ScriptServed, event.FileServed), os)
	done := append(append(append([]event.Event{}, installing...), of(event.ConfigServed, event.InstallDone)...), of(event.DHCPAck, event.ScriptServed)...)
	for _, tt := range []struct {
		name, install string
		events        []event.Event
		reached       []string
		why           string
	}{
		{"started", "armed", of(event.VMStarted), nil, ""},
		{"firmware", "armed", of(event.DHCPAck, event.TFTPServed), []string{"lease"}, ""},
		{"installer", "installing", installing, []string{"lease", "kernel"}, ""},
		{"installed, restarts", "installed", done, []string{"lease", "kernel", "config", "installed"}, ""},
		{"installed, runs", "installed", append(append([]event.Event{}, done...), os), []string{"lease", "kernel", "config", "installed", "ready"}, ""},
		{"loop", "held", of(event.ScriptServed, event.InstallLoop), nil, "install_loop"},
	} {
		for _, step := range waitSteps {
			reached, why := progress(step, api.Host{Install: tt.install, MachineStage: "running"}, tt.events)
			want := false
			for _, r := range tt.reached {
				want = want || r == step
			}
			if reached != want || why != tt.why {
				t.Errorf("%s, %s: %v %q, want %v %q", tt.name, step, reached, why, want, tt.why)
			}
		}
	}
	config := event.Event{Kind: event.ConfigServed}
	for _, tt := range []struct {
		name   string
		h      api.Host
		events []event.Event
		ready  bool
	}{
		{"no installation, a lease of its system", api.Host{MachineStage: "running"}, []event.Event{os}, true},
		{"no installation, another boot before", api.Host{MachineStage: "running"}, of(event.VMStarted, event.DHCPAck), false},
		{"live with a static address", api.Host{MachineStage: "running"}, append(of(event.ScriptServed, event.FileServed), config), true},
		{"live with a static address, and a check that fails", api.Host{MachineStage: "starting"}, append(of(event.ScriptServed, event.FileServed), config), false},
		{"installer with a static address", api.Host{MachineStage: "running", Install: "installed"}, append(of(event.ScriptServed), config), false},
		{"a check that passes", api.Host{MachineStage: "serving", Install: "installed"}, of(event.VMStarted, event.BackendUp), true},
		{"a lease, and a check that fails", api.Host{MachineStage: "starting", Install: "installed"}, []event.Event{os}, false},
		{"only counts as installed", api.Host{MachineStage: "running", Install: "installed", Assumed: true}, []event.Event{os}, false},
	} {
		if reached, why := progress("ready", tt.h, tt.events); reached != tt.ready || why != "" {
			t.Errorf("%s: ready: %v %q, want %v", tt.name, reached, why, tt.ready)
		}
	}
	bySystem := append(append([]event.Event{}, installing...), event.Event{Kind: event.ConfigServed}, os, event.Event{Kind: event.InstallDone, Client: event.ClientOS})
	if reached, _ := progress("ready", api.Host{Install: "installed", MachineStage: "running"}, bySystem); !reached {
		t.Error("a system that was acknowledged its lease before the end of its installation was stored is not ready")
	}
	if reached, why := progress("installed", api.Host{}, nil); reached || why != "its profile installs nothing" {
		t.Errorf("nothing to install: %v %q", reached, why)
	}
}

// TestWaitForAMachineThatIsOff: no step is reached by a machine that does not run, whatever ended it.
func TestWaitForAMachineThatIsOff(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"off", "absent", "crashed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			answer := func(v any) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
			}
			mux := http.NewServeMux()
			mux.HandleFunc(api.Prefix+"hosts", answer([]api.Host{{Name: "m", VM: state}}))
			mux.HandleFunc(api.Prefix+"timeline/m", answer([]api.Boot{}))
			srv := httptest.NewServer(mux)
			t.Cleanup(srv.Close)
			c, err := api.NewClient(srv.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			w := &waiter{step: "lease", timeout: time.Minute, c: c}
			if err := w.wait(t.Context(), []string{"m"}); err == nil || !strings.Contains(err.Error(), "m will not reach lease: its virtual machine is "+state) {
				t.Errorf("%v", err)
			}
		})
	}
}
