package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestWhyNamesTheState: why and hosts have one word for what a machine is.
func TestWhyNamesTheState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		d    api.Diagnosis
		want string
	}{
		{"fails its check", api.Diagnosis{State: "stopped", Stage: event.StageBalancer, MachineStage: "failing"}, "a: failing at stage balancer\n"},
		{"off", api.Diagnosis{State: "stopped", Stage: event.StageMachine, MachineStage: "off"}, "a: off\n"},
		{"its turn comes", api.Diagnosis{State: "booting", Stage: event.StageMachine, MachineStage: "waiting"}, "a: waiting\n"},
		{"serves", api.Diagnosis{State: "done", Stage: event.StageInstall, MachineStage: "serving"}, "a: serving\n"},
		{"in no lab file", api.Diagnosis{State: "stopped", Stage: event.StageAddress}, "a: stopped at stage address\n"},
		{"its boot stopped", api.Diagnosis{State: "stopped", Stage: event.StageFiles, MachineStage: "stopped"}, "a: stopped at stage files\n"},
	} {
		tt.d.Host, tt.d.Cause = "a", "a cause"
		var b strings.Builder
		if err := writeDiagnosis(&b, tt.d); err != nil || !strings.HasPrefix(b.String(), tt.want) {
			t.Errorf("%s: %v, %q, want %q", tt.name, err, b.String(), tt.want)
		}
	}
}

// TestWhyOfAFailingMachine: a machine that runs and fails its check is not one that did not boot, and hosts does not show the installation of a
// stopped one as in progress.
func TestWhyOfAFailingMachine(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for path, answer := range map[string]any{
		"hosts": []api.Host{
			{Name: "a", MachineStage: "failing", Install: "installed"}, {Name: "b", MachineStage: "stopped", Install: "booting"},
			{Name: "c", MachineStage: "off", Install: "installing"}, {Name: "d", MachineStage: "booting", Install: "booting"},
		},
		"hosts/a/why": api.Diagnosis{Host: "a", State: "stopped", MachineStage: "failing", Cause: "it fails its check"},
		"hosts/b/why": api.Diagnosis{Host: "b", State: "stopped", MachineStage: "stopped", Cause: "it was silent"},
	} {
		mux.HandleFunc("GET "+api.Prefix+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(answer) })
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	for _, s := range []step{
		{args: "why a", err: "failing: a", not: []string{"not booted"}},
		{args: "why a b", err: "not booted: b"},
		{args: "hosts", out: []string{"a - - - installed - failing", "b - - - booting - stopped", "c - - - unfinished - off", "d - - - booting - booting"}},
	} {
		s.check(t, run(t.Context(), append(strings.Fields(s.args), "--server", srv.URL)...))
	}
}
