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

// TestAddressOfTheSecondMAC: a host without ip has the address that any of its MACs leased, wherever it is shown.
func TestAddressOfTheSecondMAC(t *testing.T) {
	netns.Need(t, "root", "ip", "udhcpc")
	r := newRig(t, "10.125.5.1")
	r.write(strings.Replace(r.read(), "address: 10.125.5.1}", "address: 10.125.5.1, pools: {p: {range: 10.125.5.150-10.125.5.160}}}", 1) +
		"\n  two: {mac: [\"52:54:00:00:17:01\", \"52:54:00:00:17:02\"], network: n}\n")
	r.start()
	r.until("its second MAC has a lease", func() bool {
		_ = r.seg.NewClient(t, "52:54:00:00:17:02").Command(t.Context(), "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "2", "-T", "1", "-s", "/bin/true").Run()
		all, err := r.client.Leases(t.Context())
		return err == nil && len(all) == 1
	})
	hosts, err := r.client.Hosts(t.Context())
	for _, h := range hosts {
		if h.Name == "two" && !strings.HasPrefix(h.IP.String(), "10.125.5.1") {
			t.Errorf("host two has the address %s", h.IP)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
