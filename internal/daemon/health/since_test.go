package health

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestSinceItServesAgain: after an outage a server serves since its end, not since its start.
func TestSinceItServesAgain(t *testing.T) {
	t.Parallel()
	up := machine{interfaces: []net.Interface{{Name: "br0", Flags: net.FlagUp}}}
	for name, outage := range map[string]struct{ begin, end func(h *Servers) }{
		"socket":    {func(h *Servers) { h.Opened(DHCP, "br0", errors.New("gone")) }, func(h *Servers) { h.Opened(DHCP, "br0", nil) }},
		"interface": {func(h *Servers) { h.look(machine{}, &lab.Lab{}) }, func(h *Servers) { h.look(up, &lab.Lab{}) }},
		"accept": {func(h *Servers) { h.accepted(DHCP, "br0", errors.New("no descriptors")) }, func(*Servers) {
			time.Sleep(acceptErrorLasts) // nothing calls Accept again
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := New()
				h.Started(DHCP)
				start := time.Now()
				time.Sleep(time.Second)
				h.Opened(DHCP, "br0", nil)
				h.look(up, &lab.Lab{})
				if s := h.Server(DHCP, []string{"br0"}); !s.Serving || !s.Since.Equal(start) {
					t.Errorf("before the outage: %+v, want it to serve since %v", s, start)
				}
				time.Sleep(time.Hour)
				outage.begin(h)
				began := time.Now()
				if s := h.Server(DHCP, []string{"br0"}); s.Serving || !s.Since.Equal(began) {
					t.Errorf("in the outage: %+v, want none since %v", s, began)
				}
				time.Sleep(time.Second)
				outage.end(h)
				ended := time.Now()
				if name == "accept" {
					ended = began.Add(acceptErrorLasts)
				}
				time.Sleep(time.Hour)
				h.look(up, &lab.Lab{})
				for range 2 {
					if s := h.Server(DHCP, []string{"br0"}); !s.Serving || !s.Since.Equal(ended) {
						t.Errorf("after the outage: %+v, want it to serve since %v", s, ended)
					}
					h.accepted(DHCP, "br0", nil)
				}
			})
		})
	}
}

// TestBalancerWithoutInterface: a balancer's address that this machine lacks may be another machine's, but not while the interface of its network
// is gone or down.
func TestBalancerWithoutInterface(t *testing.T) {
	t.Parallel()
	const socket = "10.0.0.5:80"
	l := &lab.Lab{Networks: []*lab.Network{{Name: "n", Subnet: netip.MustParsePrefix("10.0.0.0/24"), Interface: "br0"}}}
	l.Index()
	for name, tt := range map[string]struct {
		have    machine
		serving bool
	}{
		"another machine may have the address": {machine{interfaces: []net.Interface{{Name: "br0", Flags: net.FlagUp}}}, true},
		"the interface is gone":                {machine{}, false},
		"the interface is down":                {machine{interfaces: []net.Interface{{Name: "br0"}}}, false},
		"this machine has the address":         {machine{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}, true},
	} {
		h := New()
		h.Started(LB)
		h.Opened(LB, socket, nil)
		h.look(tt.have, l)
		if s := h.Server(LB, []string{socket}); s.Serving != tt.serving {
			t.Errorf("%s: %+v, want serving: %v", name, s, tt.serving)
		}
	}
}
