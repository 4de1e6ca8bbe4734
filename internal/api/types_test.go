package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

// TestStatusJSON: JSON has the states that the text has, and why a server is degraded.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	s := api.Status{
		Servers:   []api.Server{{Name: "dnsd", Serving: true}, {Name: "lbproxy", Serving: true}, {Name: "virt", Serving: true, Warnings: []string{"hypervisor kvm1 does not answer"}}, {Name: "tftpd"}},
		Balancers: []api.BalancerHealth{{Name: "web", Down: 2}},
	}
	text, err := json.Marshal(s.WithStates())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"name":"dnsd","serving":true,"state":"serving"}`,
		`{"name":"lbproxy","serving":true,"state":"degraded","problems":["balancers without a healthy backend: 1 of 1"]}`,
		`"state":"degraded","problems":["hypervisor kvm1 does not answer"],"warnings":`,
		`{"name":"tftpd","serving":false,"state":"not serving"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}
