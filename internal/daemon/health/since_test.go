package health

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestSinceItServesAgain: after an outage a server serves since its end, not since its start.
func TestSinceItServesAgain(t *testing.T) {
	t.Parallel()
	up := machine{interfaces: []net.Interface{{Name: "br0", Flags: net.FlagUp}}}
	for name, outage := range map[string]struct{ begin, end func(h *Servers) }{
		"socket":    {func(h *Servers) { h.Opened(DHCP, "br0", errors.New("gone")) }, func(h *Servers) { h.Opened(DHCP, "br0", nil) }},
		"interface": {func(h *Servers) { h.look(machine{}) }, func(h *Servers) { h.look(up) }},
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
				h.look(up)
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
				h.look(up)
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
