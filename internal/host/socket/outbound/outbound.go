// Package outbound sends HTTP requests to servers whose addresses are checked before a connection to them is made: what the daemon fetches for
// others must not lead them to what only this machine may reach.
//
//	t := outbound.New(settings, outbound.Checked(dialer, allowed))
package outbound

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"syscall"
)

// A Dial connects to an address of package net.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Checked returns a Dial that connects to no address for which allowed returns an error, also not to one that a name leads to.
func Checked(d net.Dialer, allowed func(netip.AddrPort) error) Dial {
	d.Control = func(_, addr string, _ syscall.RawConn) error { // after names were resolved
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			return err
		}
		return allowed(at)
	}
	return d.DialContext
}

// A Transport sends requests to servers themselves, or to the proxy of the environment (HTTPS_PROXY and the like), which decides itself and
// whose own address may be any. It is safe for concurrent use.
type Transport struct{ direct, proxied *http.Transport }

// New returns a transport with these settings that connects to servers with dial, and to proxies with settings.DialContext.
func New(settings *http.Transport, dial Dial) *Transport {
	t := &Transport{direct: settings.Clone(), proxied: settings}
	t.direct.Proxy, t.direct.DialContext = nil, dial
	t.proxied.Proxy = http.ProxyFromEnvironment
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if proxy, err := t.proxied.Proxy(r); err != nil || proxy != nil {
		return t.proxied.RoundTrip(r)
	}
	return t.direct.RoundTrip(r)
}

// CloseIdleConnections is for http.Client.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
