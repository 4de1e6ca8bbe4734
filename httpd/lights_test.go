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
		_, list, _ := strings.Cut(page("/"), "<span>servers</span>")
		list, _, _ = strings.Cut(list, "</ul>")
		for _, item := range strings.Split(list, `<li class="`)[1:] {
			class, _, _ := strings.Cut(item, `"`)
			got = append(got, class)
		}
		return got
	}
	if got := strings.Join(lights(), " "); got != "up down partly partly idle" {
		t.Errorf("lights %s", got)
	}
	if !strings.Contains(page("/"), "mycluster-ingress-http: 0 of 1 healthy, none was yet") {
		t.Error("no balancer without a backend is named")
	}
	h.status.Balancers[1] = api.BalancerHealth{Name: "mycluster-ingress-http", Up: 1}
	if got := strings.Join(lights(), " "); got != "up down partly up idle" {
		t.Errorf("lights %s", got)
	}
	if text := page("/hosts/loadbalancer"); !strings.Contains(text, "NIC in provisioning") || !strings.Contains(text, "172.22.0.31") {
		t.Error("the page of a host lacks its second NIC")
	}
	if !strings.Contains(page("/"), "172.22.0.31 in provisioning") {
		t.Error("the list of hosts lacks a second NIC")
	}
}
