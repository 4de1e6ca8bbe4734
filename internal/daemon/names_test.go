package daemon_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestResolveShortName: resolve of a host's name alone says which name was meant, whether there is a forwarder or not.
func TestResolveShortName(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.4.1")
	r.write(r.read() + "\n  box: {mac: 52:54:00:00:17:01, ip: 10.125.4.30}\ndns: {forward: [127.0.0.1:9]}\n")
	r.start()
	a, err := r.client.Resolve(t.Context(), api.DNSQuestion{Name: "box"})
	if err != nil || a.Code != "NXDOMAIN" || !strings.Contains(a.Steps[len(a.Steps)-1].Text, "did you mean box.") {
		t.Errorf("%+v, %v", a, err)
	}
}
