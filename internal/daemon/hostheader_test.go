package daemon_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestNamesOfTheAdminAPI: it answers by the addresses and names of this machine, those of the lab's appliance and those of admin_hosts.
func TestNamesOfTheAdminAPI(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.57.0.1")
	r.write(strings.NewReplacer("appliance: {", "appliance: {admin_hosts: [proxy.example], ", "hosts:\n", "hosts:\n  boot: {role: appliance, ip: 10.57.0.1}\n").Replace(r.read()))
	r.start()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{ // without the token
		"10.57.0.1:9680": http.StatusUnauthorized, "localhost": http.StatusUnauthorized, name: http.StatusUnauthorized, "boot.lab.test:9680": http.StatusUnauthorized,
		"boot": http.StatusUnauthorized, "proxy.example": http.StatusUnauthorized,
		"boot:9680": http.StatusUnauthorized, "proxy.example:8443": http.StatusUnauthorized, "localhost:8000": http.StatusUnauthorized, // ssh -L
		"10.57.0.1:9681": http.StatusMisdirectedRequest, "boot.lab.test:80": http.StatusMisdirectedRequest, "boot:": http.StatusUnauthorized,
		"127.0.0.1:9680.evil": http.StatusMisdirectedRequest, "localhost:evil": http.StatusMisdirectedRequest, "proxy.example:99999": http.StatusMisdirectedRequest,
		"a.lab.test": http.StatusMisdirectedRequest, "10.57.0.11": http.StatusMisdirectedRequest, "evil.example": http.StatusMisdirectedRequest,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.57.0.1:9680/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host: %s: %d, want %d\n%s", host, resp.StatusCode, want, body)
		}
	}
}
