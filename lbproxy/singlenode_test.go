package lbproxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestSingleNodeBootstrap: the machine configuration of a single-node cluster comes from the bootstrap at the address of api-int, and from
// the node itself once it serves; the address is the same all the time.
func TestSingleNodeBootstrap(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`
version: 1
domain: lab.example
networks: {lan: {subnet: 127.79.3.0/24, address: 127.79.3.1, dhcp: off}}
clusters: {sno: {kind: openshift, address: 127.79.3.5}}
hosts:
  node: {mac: 52:54:00:00:00:01, ip: 127.79.3.5, cluster: sno, role: master}
  boot: {mac: 52:54:00:00:00:02, ip: 127.79.3.9, cluster: sno, role: bootstrap}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	apiInt := ""
	for _, z := range l.Zones {
		for _, r := range z.Records {
			if r.Name == "api-int.sno.lab.example." {
				apiInt = r.Addr.String()
			}
		}
	}
	serve := func(addr, says string) {
		t.Helper()
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) }))
		s.Listener = listener
		s.StartTLS()
		t.Cleanup(s.Close)
	}
	var balancers []*lab.Balancer
	for _, b := range l.Balancers {
		if b.Listen.Port() == 22623 {
			b.Check.Interval, b.Check.FastInterval = 100_000_000, 100_000_000
			balancers = append(balancers, b)
		}
	}
	serve("127.79.3.9:22623", "bootstrap")
	s := newTestServer(t, Config{}, balancers...)
	get := func() string {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		res, err := client.Get("https://" + net.JoinHostPort(apiInt, "22623") + "/config/master")
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	s.waitHealth(t, netip.MustParseAddrPort("127.79.3.5:22623"), Down)
	netns.WaitFor(t, "the bootstrap's configuration", func() bool { return get() == "bootstrap" })
	serve("127.79.3.5:22623", "node")
	netns.WaitFor(t, "the node's configuration", func() bool { return get() == "node" })
}
