package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestAdminAsStranger asks with curl for every route over TCP: without the token, with a wrong one and with the right one.
func TestAdminAsStranger(t *testing.T) {
	t.Parallel()
	netns.Need(t, "curl")
	h := newAdminServer(t)
	routes := []struct {
		method, path string
		open         bool   // needs no token
		status       string // with the token
		has          string // in the body, with the token
		page         bool
	}{
		{"GET", "/healthz", true, "200", "ok\n", false},
		{"GET", "/readyz", true, "200", "dhcpd: ok\n", false},
		{"GET", "/metrics", true, "200", "bootlab_httpd_requests_total", false},
		{"POST", "/metrics", true, "405", "", false},
		{"GET", "/static/style.css", true, "200", "color-scheme", false},
		{"GET", "/static/live.js", true, "200", "use strict", false},
		{"GET", "/static/nothing", true, "404", "", false},
		{"GET", "/", false, "200", "<b>master-0</b>", true},
		{"GET", "/", false, "200", "2&nbsp;stopped", true},
		{"GET", "/?q=dell", false, "200", `Dell Inc. &lt;b&gt;R640&lt;/b&gt;<small>serial J8K2P53`, true}, // a stranger's own words
		{"GET", "/?q=de:ad:be:ef:00:03", false, "200", "bootlab adopt de:ad:be:ef:00:03", true},
		{"GET", "/api/v1/lab?host=a&secrets=1", false, "200", "plan of a, secrets and all\n", false},
		{"GET", "/?q=control-plane+held", false, "200", "No host matches", true},
		{"GET", "/hosts/master-1", false, "200", "file missing", true},
		{"GET", "/hosts/master-1", false, "200", "a file that it loads is not served: &lt;k&gt;", true},
		{"GET", "/api/v1/hosts/nobody/why", false, "404", "no host nobody", false},
		{"GET", "/hosts/52-54-00-00-02-03", false, "200", "<h1>master-1</h1>", true},
		{"GET", "/hosts/loadbalancer-provisioning.mycluster.example.com", false, "200", "<h1>loadbalancer</h1>", true},
		{"GET", "/hosts/DE:AD:BE:EF:00:01", false, "200", "<h1>de:ad:be:ef:00:01</h1>", true},
		{"GET", "/hosts/nobody", false, "404", "no host nobody", true},
		{"GET", "/hosts/%3Cscript%3E", false, "400", "is not the name of a host", true},
		{"POST", "/do/install/master-1", false, "303", "", false},
		{"POST", "/do/install/master-1?done=1", false, "303", "", false},
		{"GET", "/hosts/master-1", false, "200", `name="done" value="1" title="it boots from its own disk">Mark as installed<`, true},
		{"POST", "/do/reload", false, "303", "", false},
		{"GET", "/api/v1/status", false, "200", `"lab":"openshift-upi"`, false},
		{"POST", "/api/v1/status", false, "405", `"error":"POST is not for /api/v1/status"`, false},
		{"GET", "/api/v1/hosts", false, "200", `"name":"master-0"`, false},
		{"GET", "/api/v1/leases", false, "200", `"hostname":"printer"`, false},
		{"GET", "/api/v1/leases?pool=guests&state=conflict", false, "200", `[{"ip":"192.168.131.204","mac":"00:00:00:00:00:00","network":"cluster","pool":"guests","state":"conflict","expires":"2026-11-21T12:01:00Z"}]`, false},
		{"GET", "/api/v1/leases?network=nowhere", false, "200", "[]", false},
		{"GET", "/api/v1/leases?state=gone", false, "400", `\"gone\" is not the state of a lease`, false},
		{"POST", "/api/v1/leases/192.168.131.203/release", false, "200", `"state":"released"`, false},
		{"POST", "/api/v1/leases/192.168.131.10/release", false, "200", "in 11h0m0s at the latest; the reservation for bootstrap stays", false},
		{"POST", "/api/v1/leases/192.168.131.204/release", false, "200", "may be offered again", false},
		{"GET", "/api/v1/leases/192.168.131.203/release", false, "405", `want POST`, false},
		{"POST", "/api/v1/leases/192.168.131.199/release", false, "404", `no lease of 192.168.131.199`, false},
		{"POST", "/api/v1/leases/192.168.131.205/release", false, "409", `the store is full`, false},
		{"POST", "/api/v1/leases/printer/release", false, "400", `\"printer\" is not an address`, false},
		{"GET", "/api/v1/pools", false, "200", `"name":"guests","range":"192.168.131.200-192.168.131.205","size":3,"free":0`, false},
		{"GET", "/?q=guests", false, "200", `<span class="chip conflict">conflict</span>`, true},
		{"GET", "/", false, "200", "A pool is full", true},
		{"GET", "/api/v1/timeline/master-1", false, "200", `"kind":"file_missing"`, false},
		{"GET", "/api/v1/timeline/nobody", false, "404", `{"error":"no host nobody","hint":"bootlab hosts lists them"}`, false},
		{"GET", "/api/v1/timeline/nobody?follow=1", false, "404", `"error":"no host nobody"`, false},
		{"GET", "/api/v1/timeline/a%2Fb", false, "400", `is not the name of a host`, false},
		{"POST", "/api/v1/install/master-1?now=1", false, "200", `"state":"armed","cycled":true`, false},
		{"POST", "/api/v1/install/nobody", false, "404", `no host nobody`, false},
		{"POST", "/api/v1/install/master-1?done=1", false, "200", `"state":"installed"`, false},
		{"GET", "/api/v1/unknown", false, "200", `"serial":"J8K2P53"`, false},
		{"GET", "/api/v1/unknown/de:ad:be:ef:00:02", false, "200", `"names":["j8k2p53"]`, false},
		{"GET", "/api/v1/unknown/de-ad-be-ef-00-09", false, "404", "no host", false},
		{"GET", "/api/v1/unknown/printer", false, "400", "want one such as 52-54-00-2c-01-10", false},
		{"GET", "/api/v1/state", false, "200", `"condition":"known"`, false},
		{"POST", "/api/v1/state/accept-new?database=ABC", false, "200", `"database":"ABC"`, false},
		{"GET", "/api/v1/state/accept-new", false, "405", `want POST`, false},
		{"GET", "/api/v1/vms", false, "200", "[]", false},
		{"POST", "/api/v1/vms/master-1?action=start", false, "200", `"state":"running"`, false},
		{"POST", "/api/v1/vms/master-1?action=stop&timeout=-3s", false, "400", `want one such as 90s or 10m`, false},
		{"POST", "/api/v1/vms/master-1?action=explode", false, "400", `want one of [create start stop delete apply forget]`, false},
		{"GET", "/api/v1/balancers", false, "200", `"name":"mycluster-api"`, false},
		{"POST", "/api/v1/backends/mycluster-api/192.168.131.11:6443?action=drain", false, "200", `"state":"draining"`, false},
		{"POST", "/api/v1/backends/mycluster-api/x", false, "400", `action=\"\" is not known`, false},
		{"POST", "/api/v1/backends/mycluster-api/192.168.131.19:6443?action=add&weight=x", false, "400", `is not a weight`, false},
		{"POST", "/api/v1/backends/mycluster-api/192.168.131.19:6443?action=weight&weight=0", false, "400", `want 1 to 256`, false},
		{"POST", "/api/v1/reload?force=1", false, "200", `"generation":8`, false},
		{"POST", "/api/v1/reload?check=1", false, "200", `"generation":8`, false},
		{"GET", "/api/v1/lab?host=master-0", false, "200", "plan of master-0\n", false},
		{"POST", "/api/v1/leases/import", false, "400", "the body is not a list of leases", false},
		{"GET", "/api/v1/leases/import", false, "405", "want POST", false},
		{"GET", "/api/v1/backup", false, "200", "a backup\n", false},
		{"POST", "/api/v1/backup", false, "405", "want GET", false},
		{"GET", "/api/v1/token", false, "403", "over the Unix socket only", false},
		{"GET", "/api/v1/nothing", false, "404", `there is no /api/v1/nothing`, false},
		{"GET", "/boot/52-54-00-00-02-01/boot.ipxe", false, "404", "", false},
		{"GET", "/files/x", false, "404", "", false},
	}
	for i, tt := range routes {
		source := fmt.Sprint("127.0.1.", i+1) // each with tries of its own
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			for _, wrong := range [][]string{{}, {"--interface", source, "-H", "Authorization: Bearer wrong"}, {"-H", "Authorization: Basic " + adminToken}, {"-b", "bootlab=" + adminToken}} {
				header, body := curl(t, append(wrong, "-X", tt.method, h.url+tt.path)...)
				if tt.open {
					continue
				}
				if !strings.Contains(header, " 401 ") || strings.Contains(body, "openshift") || strings.Contains(body, "master-0") {
					t.Errorf("%v without the token: %s%s", wrong, header, body)
				}
				if tt.page != strings.Contains(body, `name="token"`) {
					t.Errorf("a page wants a login and nothing else does: %s", body)
				}
			}
			header, body := curl(t, "-X", tt.method, "-H", "Authorization: Bearer "+adminToken, h.url+tt.path)
			if !strings.HasPrefix(header, "HTTP/1.1 "+tt.status+" ") || !strings.Contains(body, tt.has) {
				t.Errorf("got %s%s\nwant %s with %s", header, body, tt.status, tt.has)
			}
			for _, line := range []string{"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff", "Cache-Control: no-"} {
				if !strings.Contains(header, line) {
					t.Errorf("header lacks %q:\n%s", line, header)
				}
			}
			if strings.Contains(body, adminToken) {
				t.Error("the body tells the token")
			}
		})
	}
	want := []string{"install master-1 0", "install master-1 1", "install nobody 0", "mark master-1", "mark master-1", "vm master-1 start", "accept ABC", "backend mycluster-api 192.168.131.11:6443 drain", "release 192.168.131.10", "release 192.168.131.203", "release 192.168.131.204", "release 192.168.131.205", "reload 0", "reload 1", "check reload"}
	slices.Sort(want)
	if diff := cmp.Diff(want, h.told()); diff != "" {
		t.Errorf("told to do (-want +got):\n%s", diff)
	}
	if logs := h.logs.String(); strings.Contains(logs, adminToken) {
		t.Errorf("the log holds the token:\n%s", logs)
	}
}

func (h *fakeDaemon) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := slices.Clone(h.done)
	slices.Sort(done)
	return done
}

// TestOpenPagesTellNothing holds that what needs no token names no host, address, MAC or lab.
func TestOpenPagesTellNothing(t *testing.T) {
	t.Parallel()
	fakeDaemon := newFakeDaemon()
	fakeDaemon.status.Reload.Err = "lab.yaml:3:4: hosts.master-0.mac: 52:54:00:00:02:01 is taken"
	fakeDaemon.status.Servers[2].Serving, fakeDaemon.status.Servers[2].Err = false, "listen udp 192.168.131.1:53: in use"
	h := newAdminServerOf(t, fakeDaemon, nil)
	curl(t, "-H", "Authorization: Bearer "+adminToken, h.url+"/hosts/master-1")
	secret := regexp.MustCompile(`master|openshift|mycluster|192\.168|52[:-]54|lab\.yaml|` + adminToken)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/static/style.css", "/static/live.js", "/static/icon.svg", "/", "/login"} {
		header, body := curl(t, "-L", h.url+path)
		if found := secret.FindString(header + body); found != "" {
			t.Errorf("%s tells %q", path, found)
		}
	}
}

// TestReadyz is ready when every server answers. A refused reload is visible, but no reason to be unready.
func TestReadyz(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*api.Status)
		code   int
		has    string
	}{
		{"all serve", func(*api.Status) {}, 200, "dnsd: ok\n"},
		{"one does not", func(s *api.Status) { s.Servers[2].Serving, s.Servers[2].Addrs = false, nil }, 503, "dnsd: not serving\n"},
		{"starting", func(s *api.Status) { s.Servers = nil }, 503, "starting: no server answers yet\n"},
		{"an interface is down", func(s *api.Status) {
			s.Conditions = []api.Condition{{Kind: api.ConditionInterface, Name: "br0", Problem: "interface is down"}, {Kind: api.ConditionInterface, Name: "br1", OK: true}, {Kind: api.ConditionPool, Name: "lan/guests", OK: true}}
		}, 200, "\ninterfaces: failed: br0: interface is down\npools: ok\n"},
		{"machines with one error", func(s *api.Status) {
			x, y := &lab.Problem{Message: "x"}, &lab.Problem{Message: "y"}
			s.Conditions = []api.Condition{{Kind: api.ConditionMachine, Name: "a", Problem: "refused: x", Cause: x}, {Kind: api.ConditionMachine, Name: "b", Problem: "refused: x", Cause: x}, {Kind: api.ConditionMachine, Name: "c", Problem: "refused: y", Cause: y}}
		}, 200, "\nmachines: failed: a, b: refused: x; c: refused: y\n"},
		{"an address is in use", func(s *api.Status) { s.Addresses = s.Addresses[1:] }, 200, "\naddresses: degraded: 192.168.131.9 is used by another machine"},
		{"all addresses are held", func(s *api.Status) { s.Addresses = s.Addresses[:1] }, 200, "\naddresses: ok\n"},
		{"a balancer without backends", func(s *api.Status) { s.Balancers = []api.BalancerHealth{{Name: "web", Listen: "10.0.0.1:80", Down: 2}} }, 200, "\nbalancers: degraded: web"},
		{"a store", func(s *api.Status) { s.Store = api.Store{Folder: "/s"} }, 200, "\nstore: ok\n"},
		{"a store that fails", func(s *api.Status) { s.Store = api.Store{Folder: "/s", Causes: []string{"disk full"}} }, 200, "\nstore: degraded: disk full (bootlab status says what to do)\n"},
		{"lost states", func(s *api.Status) { s.StateLost = "why" }, 200, "\nstate: install states were lost; no machine is installed until an admin says so"},
		{"reload refused", func(s *api.Status) { s.Reload.Err = "line 3" }, 200, "reload: the last one was refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newFakeDaemon()
			tt.change(&h.status)
			w := httptest.NewRecorder()
			newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.has) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// TestLogin logs in with curl's cookie jar, acts, and logs out.
func TestLogin(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	jar := filepath.Join(t.TempDir(), "jar")
	header, body := curl(t, "-c", jar, "-d", "token=wrong-wrong-wrong-wrong", h.url+"/login")
	if !strings.Contains(header, " 403 ") || !strings.Contains(body, "That is not the token.") {
		t.Fatalf("wrong token: %s%s", header, body)
	}
	header, _ = curl(t, "-c", jar, "-d", "token=+"+adminToken+"%0A", h.url+"/login")
	if !strings.Contains(header, " 303 ") || !regexp.MustCompile(`Set-Cookie: bootlab-[0-9a-f]{8}=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict\n`).MatchString(header) {
		t.Fatalf("right token: %s", header)
	}
	if cookies, _ := os.ReadFile(jar); strings.Contains(string(cookies), adminToken) {
		t.Error("the cookie is the token")
	}
	if _, body = curl(t, "-b", jar, h.url+"/"); !strings.Contains(body, "openshift-upi") {
		t.Errorf("logged in: %s", body)
	}
	crossings := map[string]string{
		"Sec-Fetch-Site: cross-site": "403", "Sec-Fetch-Site: same-site": "403", "Origin: http://127.0.0.1:8080": "403",
		"Referer: http://evil.example/": "403", "Referer: http://127.0.0.1:8080/": "403", "Referer: evil": "403", "Referer: " + h.url + "/": "303",
		"Origin: null": "403", "Sec-Fetch-Site: same-origin": "303", "Origin: " + h.url: "303",
	}
	for from, status := range crossings {
		if header, _ = curl(t, "-b", jar, "-H", from, "-X", "POST", h.url+"/do/reload"); !strings.HasPrefix(header, "HTTP/1.1 "+status+" ") {
			t.Errorf("POST with %s: want %s, got %s", from, status, header)
		}
	}
	if told := h.told(); !slices.Equal(told, []string{"reload 0", "reload 0", "reload 0"}) {
		t.Errorf("told %q", told)
	}
	curl(t, "-b", jar, "-c", jar, "-X", "POST", h.url+"/logout")
	if header, _ = curl(t, "-b", jar, h.url+"/"); !strings.Contains(header, " 401 ") {
		t.Errorf("logged out: %s", header)
	}
}

// TestDashboardEscapes feeds what a hostile machine may call itself.
func TestDashboardEscapes(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	const evil = `"><script>alert(1)</script>`
	h.leases[6].Name, h.boots[1].Events[0].Detail = evil, evil
	srv := newAdmin(t, h, &logBuffer{}, nil).Trusted()
	for _, path := range []string{"/", "/hosts/master-1", "/?q=" + url.QueryEscape(evil)} {
		body := serve(srv, path)
		if strings.Contains(body, "<script>alert") || !strings.Contains(body, "&lt;script&gt;alert") {
			t.Errorf("%s is not escaped:\n%s", path, body)
		}
	}
}

// TestDashboardIsBounded shows a part of a large lab, and finds the rest by a filter.
func TestDashboardIsBounded(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	h.hosts = nil
	for i := range 10_000 {
		h.hosts = append(h.hosts, api.Host{Name: fmt.Sprintf("node-%05d", i)})
	}
	srv := newAdmin(t, h, &logBuffer{}, nil).Trusted()
	if body := serve(srv, "/"); len(body) > 200_000 || !strings.Contains(body, "200 of 10000 shown") {
		t.Errorf("%d bytes", len(body))
	}
	if body := serve(srv, "/?q=node-09999"); !strings.Contains(body, "<b>node-09999</b>") {
		t.Error("the filter does not find it")
	}
}

// TestErrorsBecomeAnswers checks what errors of the daemon look like.
func TestErrorsBecomeAnswers(t *testing.T) {
	t.Parallel()
	fakeDaemon := newFakeDaemon()
	fakeDaemon.reloadErr = errors.New("lab.yaml:1:1: version: 2 is not known: want 1\nlab.yaml:9:1: hosts: none")
	h := newAdminServerOf(t, fakeDaemon, nil)
	c := socketClient(t, h)
	tests := []struct {
		name string
		call func() error
		want *api.Error
	}{
		{"refused reload", func() error { _, err := c.Reload(t.Context(), api.Careful); return err }, &api.Error{Status: 422,
			Message: "the lab file was refused; the running lab stays in force", Reason: h.reloadErr.Error()}},
		{"unknown host", func() error { _, err := c.Plan(t.Context(), "nobody", api.Hidden); return err }, &api.Error{Status: 404,
			Message: "no host nobody", Hint: "bootlab hosts lists them"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got *api.Error
			if err := tt.call(); !errors.As(err, &got) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailuresAreLogged: what failed, a fault of the daemon, is logged with its path and status; what was refused is not.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	logs := &logBuffer{}
	srv := newAdmin(t, newFakeDaemon(), logs, nil).Trusted()
	serve(srv, "/api/v1/hosts/nobody/why")
	serve(srv, "/api/v1/hosts/broken/why")
	if text := logs.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, `msg="request failed" server=admin method=GET path=/api/v1/hosts/broken/why status=500 err="out of order"`) {
		t.Errorf("log:\n%s", text)
	}
}

func socketClient(t *testing.T, h *adminServer) *api.Client {
	t.Helper()
	c, err := api.NewClient(h.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClientRoundTrip asks everything by the typed client, over the socket and over TCP.
func TestClientRoundTrip(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	tcp, err := api.NewClient(h.url, adminToken)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*api.Client{"socket": socketClient(t, h), "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			same(t, h.status)(c.Status(t.Context()))
			same(t, h.hosts)(c.Hosts(t.Context()))
			same(t, h.leases)(c.Leases(t.Context()))
			same(t, h.leases[7:8])(c.FindLeases(t.Context(), api.LeaseFilter{States: []api.LeaseState{api.LeaseConflict}}))
			same(t, h.pools)(c.Pools(t.Context()))
			back := api.GivenBack{Lease: h.leases[6], Message: "the machine may use the address until it renews, in 40m0s at the latest; reboot it, or renew its lease there, before another machine gets the address"}
			back.Lease.State = api.LeaseReleased
			same(t, back)(c.ReleaseLease(t.Context(), h.leases[6].IP))
			same(t, h.boots)(c.Boots(t.Context(), "master-1"))
			why, _ := h.Why(t.Context(), "master-1")
			same(t, why)(c.Why(t.Context(), "master-1"))
			same(t, h.balancers)(c.Balancers(t.Context()))
			same(t, []api.Cluster{})(c.Clusters(t.Context()))
			same(t, api.Cluster{Name: "prod"})(c.ClusterUp(t.Context(), "prod"))
			same(t, api.Cluster{Name: "prod"})(c.ClusterDown(t.Context(), "prod"))
			same(t, []api.VM{})(c.VMs(t.Context()))
			same(t, []api.Hypervisor{})(c.Hypervisors(t.Context()))
			same(t, []api.VMPlan{})(c.VMPlan(t.Context()))
			same(t, api.VMPlan{Network: "lan", Hypervisor: "kvm1", State: "running", Condition: "apply"})(c.Network(t.Context(), "kvm1", "lan", api.NetworkApply))
			same(t, api.Power{Host: "a", State: "off", By: "libvirt kvm1"})(c.Power(t.Context(), "a", api.PowerOff))
			same(t, []api.VMPlan{{Host: "a", Hypervisor: "kvm1", State: "off", Condition: "drifted", Details: []string{"memory"}}})(c.VMPlan(t.Context(), "a"))
			same(t, map[string]string{"hosts.a": "1"})(c.LabKeys(t.Context(), "a"))
			same(t, "plan of \n")(c.Plan(t.Context(), "", api.Hidden))
			same(t, "plan of a, secrets and all\n")(c.Plan(t.Context(), "a", api.Shown))
			same(t, api.Arming{Host: "a", State: "armed", Cycled: true})(c.Install(t.Context(), "a", api.CycleNow))
			same(t, api.VM{Host: "a", State: "running"})(c.VM(t.Context(), "a", api.VMStop, api.VMOptions{}))
			same(t, []api.Backend{{Name: "[::1]:80", State: api.BackendDraining}})(c.Backend(t.Context(), "b", "[::1]:80", api.BackendChange{Action: api.BackendDrain}))
			same(t, api.Reload{At: noon(), Generation: 8})(c.Reload(t.Context(), api.Forced))
		})
	}
	same(t, adminToken)(socketClient(t, h).Token(t.Context()))
	if _, err := tcp.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "over the Unix socket only") {
		t.Errorf("token over TCP: %v", err)
	}
}

// same returns a check of what a call of the client returned.
func same[T any](t *testing.T, want T) func(T, error) {
	return func(got T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
			return
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestFollow reads events as they happen, by the client and by curl, and ends when the daemon does.
func TestFollow(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	got := make(chan event.Event)
	ended := make(chan error, 1)
	go func() {
		ended <- socketClient(t, h).Follow(t.Context(), "master-1", func(e event.Event) error { got <- e; return nil })
	}()
	for i := range 3 {
		want := event.Event{Seq: uint64(i), At: noon(), Kind: event.DHCPAck, MAC: macOf(1), Host: "master-1"}
		h.news <- want
		if diff := cmp.Diff(want.Seq, (<-got).Seq); diff != "" {
			t.Error(diff)
		}
	}
	h.stop()
	if err := <-ended; err != nil {
		t.Errorf("Follow: %v", err)
	}
	<-h.unfollowed
	if told := h.told(); !slices.Equal(told, []string{"follow master-1", "unfollow master-1"}) {
		t.Errorf("told %q", told)
	}
}

// TestFollowStopsByItself ends a stream when its reader is told so or has had enough.
func TestFollowStopsByItself(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	enough := errors.New("enough")
	go func() { h.news <- event.Event{Kind: event.DHCPAck} }()
	if err := socketClient(t, h).Follow(t.Context(), "a", func(event.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Follow: %v", err)
	}
	close(h.news) // too slow
	if err := socketClient(t, h).Follow(t.Context(), "a", func(event.Event) error { return nil }); err != nil {
		t.Errorf("Follow: %v", err)
	}
}

// TestStreamIsFlushed reads the raw stream: each event is there before the next.
func TestStreamIsFlushed(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/api/v1/timeline/master-1?follow=1", nil)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "application/x-ndjson" {
		t.Errorf("type %s", ct)
	}
	lines := bufio.NewReader(resp.Body)
	h.news <- event.Event{Kind: event.FileServed, Detail: "a"}
	if l, err := lines.ReadString('\n'); err != nil || !strings.Contains(l, `"kind":"file_served"`) {
		t.Errorf("%q, %v", l, err)
	}
	h.stop()
	if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
		t.Errorf("after the stop: %q, %v", rest, err)
	}
}

// TestFollowShowsSignsOfLife keeps a stream without news from looking dead.
func TestFollowShowsSignsOfLife(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	admin := newAdmin(t, h, &logBuffer{}, nil).Trusted()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		h.news = make(chan event.Event)
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/timeline/a?follow=1", nil))
		if got := w.Body.String(); got != "\n\n" {
			t.Errorf("in 40 s: %q", got)
		}
	})
}

func TestNewAdminNeedsAToken(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	defer func() {
		if got := recover(); got != "httpd: AdminDeps.Backend is nil" {
			t.Errorf("panic %v", got)
		}
	}()
	_ = newAdmin(t, h, &logBuffer{}, func(d *httpd.AdminDeps) { d.Backend = nil })
}

// FuzzHost asserts of every name that is accepted as a host's: it stays the same when read again, and nothing in it has a
// meaning in a URL, a header or a page.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"master-0", "master-0.server.our.pretty.lab", "52:54:00:2c:01:10", "52-54-00-2C-01-10", "..", "a/b", "", "<b>", "a%2fb", "ä", "x\r\ny"} {
		f.Add(seed)
	}
	plain := regexp.MustCompile(`^[A-Za-z0-9._:-]{1,253}$`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := httpd.ParseHost(s)
		if err != nil {
			if !utf8Error(err) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := httpd.ParseHost(got)
		if err != nil || again != got || !plain.MatchString(got) || strings.Trim(got, ".") == "" {
			t.Fatalf("%q is %q is %q, %v", s, got, again, err)
		}
	})
}

// utf8Error reports whether a refusal can be shown as it is: valid text that an answer may hold.
func utf8Error(err error) bool {
	b, jerr := json.Marshal(err)
	return jerr == nil && len(b) < 1000
}

// TestSocketOfTheNext: what has stopped serving removes its Unix socket before that refuses connections, so that the next process does not
// take it for stale, and leaves alone the one that the next process makes at its path.
func TestSocketOfTheNext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.sock")
	first, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newAdmin(t, newFakeDaemon(), &logBuffer{}, nil).Serve(ctx, first); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket refuses connections, and is still there: %v", err)
	}
	_ = os.Remove(path) // as the next process does with a stale one
	next, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_ = first.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket of the next process: %v", err)
	}
}
