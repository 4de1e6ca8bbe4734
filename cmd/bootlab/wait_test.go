package main

import (
	"testing"

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
			reached, why := progress(step, api.Host{Install: tt.install}, tt.events)
			want := false
			for _, r := range tt.reached {
				want = want || r == step
			}
			if reached != want || why != tt.why {
				t.Errorf("%s, %s: %v %q, want %v %q", tt.name, step, reached, why, want, tt.why)
			}
		}
	}
	if reached, why := progress("ready", api.Host{}, []event.Event{os}); !reached || why != "" {
		t.Errorf("a system without an installation: %v %q", reached, why)
	}
	bySystem := append(append([]event.Event{}, installing...), event.Event{Kind: event.ConfigServed}, os, event.Event{Kind: event.InstallDone, Client: event.ClientOS})
	if reached, _ := progress("ready", api.Host{Install: "installed"}, bySystem); !reached {
		t.Error("a system that was acknowledged its lease before the end of its installation was stored is not ready")
	}
	if reached, why := progress("installed", api.Host{}, nil); reached || why != "its profile installs nothing" {
		t.Errorf("nothing to install: %v %q", reached, why)
	}
	if reached, _ := progress("ready", api.Host{Install: "installed", Assumed: true}, []event.Event{os}); reached {
		t.Error("a machine that only counts as installed is ready")
	}
}
