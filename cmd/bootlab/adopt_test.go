package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

const adoptiveLab = `version: 1
domain: lab.example
networks:
  lan: {subnet: 10.0.0.0/24, address: 10.0.0.1, pools: {guests: {range: 10.0.0.10-10.0.0.20, profile: discover}}}
profiles:
  discover: {os: discover}
  debian: {os: debian, kernel: linux}
  kernel-by-rack: {kernel: "linux-{{.Host.Vars.rack}}"}
  args-by-rack: {kernel: linux, args: ["rack={{.Host.Vars.rack}}"]}
hosts:
  web: {mac: 52:54:00:00:00:01, ip: 10.0.0.5, aliases: [j8k2p53]}
`

// discovered returns the machines that a daemon of that lab has discovered.
func discovered() map[string]api.Adoption {
	dell := api.UnknownMachine{
		MAC: lab.MAC{2, 0, 0, 0, 0, 1}, MACs: []lab.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}, IP: netip.MustParseAddr("10.0.0.11"), Network: "lan", Pool: "guests",
		Last: time.Now().Add(-time.Hour), Serial: "J8K2P53", Manufacturer: "Dell Inc.", Product: "PowerEdge R640", UUID: "4c4c4544-004a", Platform: "efi", MemoryMiB: 8192,
		Event: "script_served",
	}
	mute := api.UnknownMachine{MAC: lab.MAC{2, 0, 0, 0, 0, 3}, Last: time.Now().Add(-time.Hour), Event: "dhcp_refused", Reason: "no pool takes this machine"}
	return map[string]api.Adoption{
		dell.MAC.Hyphens(): {UnknownMachine: dell, Names: []string{"j8k2p53", "node-004a", "02-00-00-00-00-01"}, Wanted: dell.IP, From: "its lease"},
		mute.MAC.Hyphens(): {UnknownMachine: mute, Names: []string{"02-00-00-00-00-03"}},
	}
}

func adoptingDaemon(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET "+api.Prefix+"hosts", func(w http.ResponseWriter, _ *http.Request) { answer(w, []api.Host{{Name: "web"}}) })
	mux.HandleFunc("GET "+api.Prefix+"unknown", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []api.UnknownMachine{discovered()["02-00-00-00-00-01"].UnknownMachine, discovered()["02-00-00-00-00-03"].UnknownMachine})
	})
	mux.HandleFunc("GET "+api.Prefix+"unknown/{mac}", func(w http.ResponseWriter, r *http.Request) {
		a, ok := discovered()[r.PathValue("mac")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer(w, api.Error{Message: "was not seen"})
			return
		}
		answer(w, a)
	})
	mux.HandleFunc("POST "+api.Prefix+"install/{host}", func(w http.ResponseWriter, r *http.Request) {
		a := api.Arming{Host: r.PathValue("host"), State: "armed"}
		if r.FormValue("done") == "1" {
			a.State = "installed"
		}
		answer(w, a)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	server := adoptingDaemon(t)
	for _, s := range []step{
		{args: "hosts --unknown", out: []string{
			"MAC IP NETWORK NAME SERIAL MODEL FIRMWARE UUID LAST REASON",
			"02:00:00:00:00:01 10.0.0.11 lan - J8K2P53 Dell Inc. PowerEdge R640 efi 4c4c4544-004a script_served 1h0m", "s ago -", "dhcp_refused 1h0m", "s ago no pool takes this machine",
		}},
		{args: "hosts --unknown --json", json: true, out: []string{`"serial": "J8K2P53"`, `"reason": "no pool takes this machine"`}},
		{args: "adopt", err: "usage: bootlab adopt MAC"},
		{args: "adopt printer", err: `"printer" is not a MAC address`},
		{args: "adopt 02:00:00:00:00:09", err: "was not seen"},
		{args: "adopt 02:00:00:00:00:03", err: "its network is not known: set an address with --ip"},
		{args: "adopt 02:00:00:00:00:03 --ip nowhere", err: `--ip "nowhere" is not an address`},
		{args: "install web --done", out: []string{"web is installed"}},
		{args: "install web --done --now", err: "--done and --now exclude each other"},
	} {
		t.Run(s.args, func(t *testing.T) {
			t.Parallel()
			s.check(t, run(t.Context(), append(strings.Fields(s.args), "--server", server)...))
		})
	}
}

// TestAdopt loads the lab with the lines that adopt prints.
func TestAdopt(t *testing.T) {
	t.Parallel()
	server := adoptingDaemon(t)
	for _, tt := range []struct {
		name, args string
		err        string
		host, want string // the lines below its name
	}{
		{"its serial number is another's alias", "02:00:00:00:00:01", "", "node-004a",
			" # Dell Inc. PowerEdge R640, serial J8K2P53, UUID 4c4c4544-004a, 8 GiB or more, address: its lease\n    mac: [02:00:00:00:00:01, 02:00:00:00:00:02]\n    ip: 10.0.0.11\n"},
		{"all given", "02-00-00-00-00-01 --name db --ip 10.0.0.7 --profile debian", "", "db",
			" # Dell Inc. PowerEdge R640, serial J8K2P53, UUID 4c4c4544-004a, 8 GiB or more, address: its lease\n    mac: [02:00:00:00:00:01, 02:00:00:00:00:02]\n    ip: 10.0.0.7\n    profile: debian\n"},
		{"by its MAC", "02:00:00:00:00:03 --ip 10.0.0.8", "", "02-00-00-00-00-03", "\n    mac: 02:00:00:00:00:03\n    ip: 10.0.0.8\n"},
		{"a name that is taken", "02:00:00:00:00:01 --name web", "the lab has a host web already: want another name", "", ""},
		{"an address that is taken", "02:00:00:00:00:01 --ip 10.0.0.5", "10.0.0.5 is the address of host web: want another one", "", ""},
		{"an address of nowhere", "02:00:00:00:00:01 --ip 10.9.0.5", "is outside every network", "", ""},
		{"no such profile", "02:00:00:00:00:01 --profile debain", `adopt 02:00:00:00:00:01: profile "debain" is not in the lab: did you mean debian?`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lab.yaml")
			if err := os.WriteFile(path, []byte(adoptiveLab), 0o644); err != nil {
				t.Fatal(err)
			}
			a := run(t.Context(), append(strings.Fields("adopt "+tt.args), "--server", server, "--lab", path)...)
			step{args: tt.args, err: tt.err}.check(t, a)
			if tt.err != "" {
				return
			}
			_, lines, _ := strings.Cut(a.out, "hosts:\n")
			if strings.Contains(tt.args, "--ip") {
				tt.want = strings.Replace(tt.want, ", address: its lease", "", 1)
			}
			if want := "  " + tt.host + ":" + tt.want; lines != want {
				t.Errorf("lines:\n%s\nwant:\n%s", lines, want)
			}
			l, err := load.Parse("lab.yaml", []byte(adoptiveLab+lines), load.Options{})
			if err != nil || l.Host(tt.host) == nil {
				t.Errorf("pasted: %v", err)
			}
		})
	}
	for _, profile := range []string{"kernel-by-rack", "args-by-rack"} { // the lines are printed to be completed
		path := filepath.Join(t.TempDir(), "lab.yaml")
		if err := os.WriteFile(path, []byte(adoptiveLab), 0o644); err != nil {
			t.Fatal(err)
		}
		a := run(t.Context(), "adopt", "02:00:00:00:00:01", "--name", "new", "--profile", profile, "--server", server, "--lab", path)
		const note = "for host new: {{.Host.Vars.rack}} is not set: want vars: {rack: …} for the host"
		if a.err != nil || !strings.Contains(a.out, "profile: "+profile) || !strings.Contains(a.stderr, "note: with these lines alone, ") || !strings.Contains(a.stderr, note) {
			t.Errorf("%s: %v\n%s%s", profile, a.err, a.out, a.stderr)
		}
	}
	far := run(t.Context(), "adopt", "02:00:00:00:00:01", "--profile", "any", "--json", "--server", server, "--lab", filepath.Join(t.TempDir(), "lab.yaml"))
	if far.err != nil || !strings.Contains(far.out, `"host": "j8k2p53"`) || !strings.Contains(far.out, `"profile": "any"`) {
		t.Errorf("far away: %v\n%s", far.err, far.out)
	}
}
