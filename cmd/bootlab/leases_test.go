package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

const leasedLab = `version: 1
domain: lab.example
networks:
  lan:
    subnet: 10.0.0.0/24
    address: 10.0.0.1
    pools: {guests: {range: 10.0.0.10-10.0.0.20}}
hosts:
  web: {mac: 52:54:00:00:00:01, ip: 10.0.0.5, aliases: [shop]}
  late: {mac: 52:54:00:00:00:02, network: lan}
`

// leasedBook is what a daemon of that lab knows.
func leasedBook() []api.Lease {
	end := time.Now().Add(90*time.Minute + 40*time.Second) // what is left is shown in seconds
	lease := func(last, mac byte, host, name, pool string, state api.LeaseState) api.Lease {
		return api.Lease{
			IP: netip.AddrFrom4([4]byte{10, 0, 0, last}), MAC: lab.MAC{0x52, 0x54, 0, 0, 0, mac}, Host: host, Name: name, Network: "lan", Pool: pool,
			State: state, Expires: end, Since: end.Add(-2 * time.Hour),
		}
	}
	leases := []api.Lease{
		lease(5, 1, "web", "localhost", "", api.LeaseActive), lease(10, 2, "late", "late", "guests", api.LeaseActive),
		lease(11, 3, "", "printer", "guests", api.LeaseActive), lease(12, 4, "", "web", "guests", api.LeaseActive),
		lease(13, 5, "", "", "guests", api.LeaseActive), lease(14, 6, "", "twin", "guests", api.LeaseActive), lease(15, 7, "", "twin", "guests", api.LeaseActive),
		lease(16, 8, "", "shop", "guests", api.LeaseReleased), lease(17, 9, "", "", "guests", api.LeaseConflict), lease(18, 10, "", "9bad_name!", "guests", api.LeaseActive),
	}
	leases[0].Reserved = true
	leases[2].VendorClass, leases[2].RelayPort = "udhcp 1.36", "sw-7 eth0/7"
	leases[4].VendorClass = "\x1b[2J\nroot"
	return leases
}

// leasedDaemon answers as a daemon does, and returns its address.
func leasedDaemon(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET "+api.Prefix+"hosts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []api.Host{{Name: "web"}, {Name: "late"}})
	})
	mux.HandleFunc("GET "+api.Prefix+"pools", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []api.Pool{{Network: "lan", Name: "guests"}, {Network: "far", Name: "racks"}})
	})
	mux.HandleFunc("GET "+api.Prefix+"leases", func(w http.ResponseWriter, r *http.Request) {
		f, err := api.ParseLeaseFilter(r.URL.Query())
		if err != nil {
			t.Error(err)
		}
		kept := []api.Lease{}
		for _, l := range leasedBook() {
			if f.Keep(l, time.Now()) {
				kept = append(kept, l)
			}
		}
		answer(w, kept)
	})
	mux.HandleFunc("POST "+api.Prefix+"leases/{addr}/release", func(w http.ResponseWriter, r *http.Request) {
		for _, l := range leasedBook() {
			if l.IP.String() == r.PathValue("addr") && l.IP.As4()[3] != 13 {
				l.State = api.LeaseReleased
				answer(w, api.GivenBack{Lease: l, Message: "it keeps it until it renews"})
				return
			}
		}
		w.WriteHeader(http.StatusConflict)
		answer(w, api.Error{Message: "the store is full"})
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestLeases(t *testing.T) {
	t.Parallel()
	server := leasedDaemon(t)
	for _, s := range []step{
		{args: "leases", out: []string{
			"IP MAC NAME NETWORK POOL STATE EXPIRES", "10.0.0.5 52:54:00:00:00:01 web lan reserved active in 1h30m", "10.0.0.11 52:54:00:00:00:03 (printer) lan guests active in 1h30m",
			"10.0.0.13 52:54:00:00:00:05 - lan guests", "10.0.0.17 52:54:00:00:00:09 - lan guests conflict",
		}, not: []string{"10.0.0.16", "VENDOR", "udhcp"}},
		{args: "leases --wide --host printer", out: []string{"EXPIRES SINCE VENDOR RELAY-PORT", "udhcp 1.36 sw-7 eth0/7"}, not: []string{"10.0.0.5"}},
		{args: "leases --wide --mac 52:54:00:00:00:05", out: []string{"\ufffd[2J root"}, not: []string{"\x1b"}},
		{args: "leases --state released,conflict", out: []string{"10.0.0.16", "10.0.0.17"}, not: []string{"10.0.0.5"}},
		{args: "leases --state all --mac 52:54:00:00:00:08", out: []string{"10.0.0.16"}, not: []string{"10.0.0.17"}},
		{args: "leases --pool guests --mac 52-54-00 --network lan", out: []string{"10.0.0.10"}, not: []string{"10.0.0.5 "}},
		{args: "leases --network far --json", json: true, out: []string{"[]"}},
		{args: "leases --host shop --json", json: true, out: []string{"[]"}}, // its lease has ended
		{args: "leases --expiring 1h", not: []string{"10.0.0."}},
		{args: "leases --expiring 2h --json", json: true, out: []string{`"ip": "10.0.0.5"`, `"state": "active"`}, not: []string{"10.0.0.17"}},
		{args: "leases --expiring 1", err: "has no unit"},
		{args: "leases --expiring -1h", err: "is not a duration"},
		{args: "leases --state gone", err: `"gone" is not the state of a lease (want all, or any of active`},
		{args: "leases --mac nobody", err: `"nobody" is not a MAC`},
		{args: "leases relase", err: "did you mean release?"},
		{args: "leases release", err: "usage: bootlab leases release ADDR|MAC|NAME..."},
		{args: "leases release 10.0.0.11", out: []string{"lease of printer (52:54:00:00:00:03) for 10.0.0.11 ended: it keeps it until it renews"}},
		{args: "leases release 52-54-00-00-00-03 LATE", out: []string{"for 10.0.0.11 ended", "for 10.0.0.10 ended"}},
		{args: "leases release 10.0.0.17 --json", json: true, out: []string{`"state": "released"`}},
		{args: "leases release web", out: []string{"lease of web (52:54:00:00:00:01) for 10.0.0.5 ended"}, not: []string{"10.0.0.12"}}, // not the unknown client of that name
		{args: "leases release 10.0.0.16", err: `no lease of "10.0.0.16"; bootlab leases lists them`},
		{args: "leases release twin", err: `"twin" has 2 leases: name one of 10.0.0.14, 10.0.0.15`},
		{args: "leases release printer nobody", err: `no lease of "nobody"`, not: []string{"free"}},
		{args: "leases release printer 10.0.0.13 late", err: "release 10.0.0.13: the store is full", out: []string{"for 10.0.0.11 ended", "for 10.0.0.10 ended"}}, // goes on
	} {
		t.Run(s.args, func(t *testing.T) {
			t.Parallel()
			s.check(t, run(t.Context(), append(strings.Fields(s.args), "--server", server)...))
		})
	}
}

// TestReserve loads the lab with the lines that reserve prints.
func TestReserve(t *testing.T) {
	t.Parallel()
	server := leasedDaemon(t)
	for _, tt := range []struct {
		args  string
		err   string
		hosts map[string]string // to be in the lab
	}{
		{"printer", "", map[string]string{"printer": "10.0.0.11"}},
		{"10.0.0.12", "", map[string]string{"52-54-00-00-00-04": "10.0.0.12"}}, // its name is web's
		{"10.0.0.13", "", map[string]string{"52-54-00-00-00-05": "10.0.0.13"}}, // it has no name
		{"shop", "", map[string]string{"52-54-00-00-00-08": "10.0.0.16"}},      // its name is an alias of web; no longer leased
		{"9bad_name!", "", map[string]string{"52-54-00-00-00-0a": "10.0.0.18"}},
		{"printer 10.0.0.14 10.0.0.15", "", map[string]string{"printer": "10.0.0.11", "twin": "10.0.0.14", "52-54-00-00-00-07": "10.0.0.15"}},
		{"late", "", map[string]string{"late": "10.0.0.10"}},
		{"web", "10.0.0.5 is reserved already, for web", nil},
		{"printer web", "10.0.0.5 is reserved already, for web", nil},
		{"10.0.0.17", "10.0.0.17 has no known client (conflict)", nil},
		{"twin", "name one of", nil},
		{"nobody", `no lease of "nobody"`, nil},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "lab.yaml")
			if err := os.WriteFile(file, []byte(leasedLab), 0o644); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"leases", "reserve", "--server", server, "--lab", file}, strings.Fields(tt.args)...)
			a := run(t.Context(), args...)
			step{args: tt.args, err: tt.err}.check(t, a)
			if tt.err != "" {
				if a.out != "" {
					t.Errorf("wrote %s", a.out)
				}
				return
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != leasedLab {
				t.Errorf("the lab file is another: %s %v", text, err)
			}
			asFile, pasted := a.out, leasedLab+strings.Join(strings.Split(a.out, "hosts:\n")[1:], "")
			if tt.args == "late" { // is in the lab: its line is to be added to it
				_, line, _ := strings.Cut(a.out, "late:\n")
				pasted = strings.Replace(leasedLab, "late: {mac: 52:54:00:00:00:02, network: lan}", "late:\n    mac: 52:54:00:00:00:02\n"+strings.TrimRight(line, "\n"), 1)
				asFile = ""
			}
			reserved(t, "pasted", tt.hosts)(load.Parse("lab.yaml", []byte(pasted), load.Options{}))
			if asFile != "" {
				if err := os.WriteFile(filepath.Join(dir, "more.yaml"), []byte(asFile), 0o644); err != nil {
					t.Fatal(err)
				}
				reserved(t, "as a file", tt.hosts)(load.Lab(dir, load.Options{}))
			}
		})
	}
}

// reserved checks that a lab holds these hosts at these addresses, beside its own.
func reserved(t *testing.T, how string, hosts map[string]string) func(*lab.Lab, error) {
	return func(l *lab.Lab, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		for name, ip := range hosts {
			if h := l.Host(name); h == nil || h.IP.String() != ip || len(h.MACs) != 1 {
				t.Errorf("%s: %s is %+v, want it at %s (%v)", how, name, h, ip, slices.Sorted(maps.Keys(hosts)))
			}
		}
	}
}

// TestReserveFarAway: where the lab file is not, names are all that can be looked at.
func TestReserveFarAway(t *testing.T) {
	t.Parallel()
	server, nowhere := leasedDaemon(t), filepath.Join(t.TempDir(), "lab.yaml")
	for args, want := range map[string]string{
		"10.0.0.12":  "hosts:\n  52-54-00-00-00-04:\n    mac: 52:54:00:00:00:04\n    ip: 10.0.0.12\n",
		"printer":    "hosts:\n  printer:\n    mac: 52:54:00:00:00:03\n    ip: 10.0.0.11\n",
		"9bad_name!": "hosts:\n  52-54-00-00-00-0a:\n    mac: 52:54:00:00:00:0a\n    ip: 10.0.0.18\n",
	} {
		a := run(t.Context(), "leases", "reserve", args, "--server", server, "--lab", nowhere)
		if _, got, _ := strings.Cut(a.out, "\n"); a.err != nil || got != want {
			t.Errorf("%s: %v\n%s", args, a.err, a.out)
		}
	}
	a := run(t.Context(), "leases", "reserve", "printer", "late", "--json", "--server", server, "--lab", nowhere)
	var got []reservation
	if err := json.Unmarshal([]byte(a.out), &got); err != nil || fmt.Sprint(got) != "[{printer 52:54:00:00:00:03 [] 10.0.0.11  } {late 00:00:00:00:00:00 [] 10.0.0.10  }]" {
		t.Errorf("%v %v: %s", got, err, a.out)
	}
}
