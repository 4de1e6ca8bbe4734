package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/host/socket/outbound"
)

// A reach decides where upstreams may lead: a redirect, or a name in their DNS, must give the machines of the lab nothing that only this
// machine is served. What the lab file has by its address it has on purpose.
type reach struct {
	resolver *net.Resolver
	own      func(netip.Addr) bool
	admin    func() []netip.AddrPort
}

// dial connects to an upstream, or to where one redirects. A name must not lead to this machine. An address was in the lab file, or passed
// checkRedirect.
func (g *reach) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialWait, Resolver: g.resolver}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil || namesLoopback(host) {
		return d.DialContext(ctx, network, addr)
	}
	return outbound.Checked(d, func(at netip.AddrPort) error {
		if g.local(at.Addr()) {
			return fmt.Errorf("%s leads to %s, which is this machine or its link: an upstream there needs its address in the lab file, not a name", host, at.Addr())
		}
		return nil
	})(ctx, network, addr)
}

// checkRedirect refuses redirects to other schemes than http and https, to the admin API, to this machine or its link, and to directory
// listings. An upstream on this machine may redirect to others there.
func (g *reach) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return fmt.Errorf("redirected to %s, which is neither http nor https", r.URL.Redacted())
	case strings.HasSuffix(r.URL.Path, "/"):
		return errListing
	case g.localURL(r.URL) && slices.ContainsFunc(g.admin(), func(a netip.AddrPort) bool { return portOf(r.URL) == a.Port() }):
		return fmt.Errorf("redirected to %s, which is the admin API", r.URL.Redacted())
	case g.localURL(r.URL) && !g.localURL(via[0].URL):
		return fmt.Errorf("redirected to %s, which is this machine or its link", r.URL.Redacted())
	}
	return nil
}

// errListing means that a path is a directory upstream.
var errListing = errors.New("redirected to a directory listing")

// localURL reports whether a URL has an address of this machine, or one that is link-local, as a cloud's metadata service is.
func (g *reach) localURL(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && g.local(a) || namesLoopback(u.Hostname())
}

func (g *reach) local(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || g.own(a)
}

// namesLoopback reports whether a name is loopback's by definition (RFC 6761 section 6.3).
func namesLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// transport returns one that connects to upstreams with dial.
func (g *reach) transport() *outbound.Transport {
	return outbound.New(&http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialWait, Resolver: g.resolver}).DialContext,
		TLSHandshakeTimeout:   dialWait,
		ResponseHeaderTimeout: headerWait,
		IdleConnTimeout:       idleConn,
		MaxIdleConnsPerHost:   16,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // bytes are cached as upstream sends them
	}, g.dial)
}
