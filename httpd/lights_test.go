package httpd_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

// TestLights: the light of a server is what was measured. A load balancer whose balancers have no healthy backend is not green, nor is a
// server without anything to serve.
func TestLights(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	h.status.Servers = []api.Server{
		{Name: "dhcpd", Serving: true}, {Name: "tftpd", Err: "in use"}, {Name: "dnsd", Serving: true, Warnings: []string{"192.0.2.1: no interface has it"}},
		{Name: "lbproxy", Serving: true}, {Name: "virt", Serving: true, Idle: true},
	}
	page := func(path string) string {
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	lights := func() (got []string) {
		_, list, _ := strings.Cut(page("/"), "<h2>Servers</h2>")
		list, _, _ = strings.Cut(list, "</ul>")
		for _, item := range strings.Split(list, `<li class="`)[1:] {
			class, _, _ := strings.Cut(item, `"`)
			got = append(got, class)
		}
		return got
	}
	if got := strings.Join(lights(), " "); got != "up down degraded degraded idle" {
		t.Errorf("lights %s", got)
	}
	if !strings.Contains(page("/"), "mycluster-ingress-http: 0 of 1 healthy, none has been healthy yet") {
		t.Error("no balancer without a backend is named")
	}
	h.status.Balancers[1] = api.BalancerHealth{Name: "mycluster-ingress-http", Up: 1}
	if got := strings.Join(lights(), " "); got != "up down degraded up idle" {
		t.Errorf("lights %s", got)
	}
	h.balancers[0].Backends[0].Name = h.balancers[0].Backends[0].Addr
	if text := page("/"); strings.Contains(text, "<b>192.168.131.11:6443</b> <span") || !strings.Contains(text, `<b>master-0</b> <span class="mono">192.168.131.12:6443`) {
		t.Error("the address of a backend without another name is repeated, or that of one with a name is missing")
	}
	if text := page("/hosts/loadbalancer"); !strings.Contains(text, "NIC in provisioning") || !strings.Contains(text, "172.22.0.31") {
		t.Error("the page of a host lacks its second NIC")
	}
	if !strings.Contains(page("/"), "172.22.0.31 in provisioning") {
		t.Error("the list of hosts lacks a second NIC")
	}
}

// TestStates: the dashboard, status and /readyz say the same of a server, by one function.
func TestStates(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	for _, tt := range []struct {
		srv   api.Server
		state api.ServerState
		light string
		ready string
	}{
		{api.Server{Name: "dnsd", Serving: true}, api.StateServing, "up", "dnsd: ok"},
		{api.Server{Name: "virt", Serving: true, Idle: true}, api.StateIdle, "idle", "virt: ok"},
		{api.Server{Name: "virt", Serving: true, Cause: "1 of 1 hypervisors do not answer", Warnings: []string{"1 of 1 hypervisors do not answer: kvm1"}}, api.StateDegraded, "degraded", "virt: degraded: 1 of 1 hypervisors do not answer"},
		{api.Server{Name: "tftpd", Serving: true, Panics: 2}, api.StateDegraded, "degraded", "tftpd: degraded: panics contained: 2 (bootlab status says where)"},
		{api.Server{Name: "lbproxy", Serving: true}, api.StateDegraded, "degraded", "lbproxy: degraded: balancers without a healthy backend: 1 of 2"},
		{api.Server{Name: "dhcpd", Addrs: []string{"br0"}, Cause: "interface is down"}, api.StatePartly, "down", "dhcpd: partly serving: interface is down"},
		{api.Server{Name: "dhcpd", Cause: "interface is down"}, api.StateDown, "down", "dhcpd: not serving: interface is down"},
	} {
		h.status.Servers = []api.Server{tt.srv}
		get := func(path string) string {
			w := httptest.NewRecorder()
			newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w.Body.String()
		}
		if is := h.status.StateOf(tt.srv); is != tt.state {
			t.Errorf("%+v is %q, want %q", tt.srv, is, tt.state)
		}
		if page := get("/"); !strings.Contains(page, `<li class="`+tt.light+`" title="`+string(tt.state)) {
			t.Errorf("%+v: the dashboard does not have it %s and %q", tt.srv, tt.light, tt.state)
		}
		if ready := get("/readyz"); !strings.Contains(ready, tt.ready+"\n") {
			t.Errorf("%+v: /readyz lacks %q:\n%s", tt.srv, tt.ready, ready)
		}
	}
}

// TestMenu: the menu has each section that the page has, and no other.
func TestMenu(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	page := func(path string) string {
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	h.clusters = []api.Cluster{{Name: "prod", Kind: "openshift", Phase: "down"}}
	h.discovered = []api.UnknownMachine{{}}
	for _, path := range []string{"/", "/hosts/loadbalancer"} {
		menu, _, _ := strings.Cut(page(path), "</nav>")
		for _, id := range []string{"clusters", "hosts", "unknown", "balancers", "leases"} {
			if !strings.Contains(menu, `href="/#`+id+`"`) || !strings.Contains(page("/"), `<section id="`+id+`"`) {
				t.Errorf("%s: the menu or the page lacks %s", path, id)
			}
		}
	}
	h.clusters, h.discovered = nil, nil
	if menu, _, _ := strings.Cut(page("/"), "</nav>"); strings.Contains(menu, "#clusters") || strings.Contains(menu, "#unknown") {
		t.Error("the menu has sections that the page does not have")
	}
}

// TestArmed: an armed host is offered to mark it as installed, not to arm it once more.
func TestArmed(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	for state, want := range map[string]map[string]bool{
		"armed":      {"Install at next boot": false, "Mark as installed": true, "Install now": true},
		"installing": {"Install at next boot": true, "Mark as installed": true, "Install now": true},
		"installed":  {"Install at next boot": true, "Mark as installed": false, "Install now": true},
	} {
		h.hosts[1].Profile, h.hosts[1].Disk, h.hosts[1].Power, h.hosts[1].Install = "rescue", "/dev/vda", "redfish", state
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", "/hosts/loadbalancer", nil))
		for text, is := range want {
			if strings.Contains(w.Body.String(), text) != is {
				t.Errorf("%s: %q is offered: %v, want %v", state, text, !is, is)
			}
		}
	}
}

// TestSafeButtonFirst: where nobody knows whether a host has a system, the first button, which Enter presses, overwrites no disk.
func TestSafeButtonFirst(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	for _, state := range []string{"unknown", "held", "booting", "installing"} {
		h.hosts[1].Profile, h.hosts[1].Disk, h.hosts[1].Install = "rescue", "/dev/vda", state
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", "/hosts/loadbalancer", nil))
		page := w.Body.String()
		if done, arm := strings.Index(page, "Mark as installed"), strings.Index(page, "Install at next boot"); done < 0 || arm < done {
			t.Errorf("%s: \"Mark as installed\" at %d, \"Install at next boot\" at %d", state, done, arm)
		}
	}
}

// TestNothingToInstall: a host whose profile installs nothing is not offered an installation; one with a disk is, and the disk is named; at
// once only where something switches its power.
func TestNothingToInstall(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	for _, tt := range []struct {
		disk, power string
		want        int  // buttons that overwrite it
		now         bool // also at once
	}{{"", "redfish", 0, false}, {"/dev/vda", "redfish", 2, true}, {"/dev/vda", "", 1, false}} {
		disk, want := tt.disk, tt.want
		h.hosts[1].Profile, h.hosts[1].Disk, h.hosts[1].Power = "rescue", disk, tt.power
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", "/hosts/loadbalancer", nil))
		text := w.Body.String()
		if n := strings.Count(text, "overwrites "+disk+"</button>"); n != want || strings.Contains(text, "/do/install/") != (want > 0) || strings.Contains(text, "Install now") != tt.now {
			t.Errorf("%+v: %d buttons\n%s", tt, n, text)
		}
		if strings.Contains(text, "restart it by hand to install it now") != (want > 0 && !tt.now) {
			t.Errorf("%+v: it does not say why it cannot be installed now, or does\n%s", tt, text)
		}
	}
}

// TestClustersOnTheDashboard: a cluster has its phase, what it waits for, and links to the machines that are stuck; a lab without
// one has no such section.
func TestClustersOnTheDashboard(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	page := func() string {
		w := httptest.NewRecorder()
		newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Body.String()
	}
	if strings.Contains(page(), `id="clusters"`) {
		t.Error("a lab without a cluster has a section for them")
	}
	h.clusters = []api.Cluster{{
		Name: "prod", Kind: "openshift", Phase: "bootstrapping", Waits: "master-0: script", Serving: 1, ControlPlane: 3,
		Machines: []api.ClusterMachine{{Host: "master-0"}, {Host: "master-1", Stuck: true, Cause: "no lease"}},
	}}
	text := page()
	for _, want := range []string{`id="clusters"`, `<span class="chip bootstrapping">bootstrapping</span>`, "1 of 3", "master-0: script", `stuck: <a href="/hosts/master-1" title="no lease">`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestMachinesOnTheDashboard: a machine is what the daemon says, with the reason, in the list and on its page; nothing is green by its install
// state or by its last boot.
func TestMachinesOnTheDashboard(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	h.hosts = h.hosts[:1] // installed, and its last boot is done
	for stage, bad := range map[string]bool{"serving": false, "failing": true, "off": false, "unknown": false, "stopped": true} {
		h.hosts[0].MachineStage, h.hosts[0].MachineWhy = stage, "because of "+stage
		for _, path := range []string{"/", "/hosts/" + h.hosts[0].Name} {
			w := httptest.NewRecorder()
			newAdmin(t, h, &logBuffer{}, nil).Trusted().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			want := `<span class="chip ` + stage + `">` + stage + `</span><small`
			if bad {
				want += ` class="bad"`
			}
			if want += ">because of " + stage + "</small>"; !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s of a machine that is %s lacks %s", path, stage, want)
			}
		}
	}
}
