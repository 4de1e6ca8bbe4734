package httpd

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// addressed reports whether the Host header of a request names this appliance. A page of another site whose name was made to resolve to our
// address (DNS rebinding) has the cookie of no session, but could show whatever needs none, and try tokens.
func (a *Admin) addressed(r *http.Request) bool {
	host := hostname(r.Host)
	port, ok := portOf(r.Host)
	if !ok {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || a.deps.Own(host, port)
	}
	addr = addr.Unmap().WithZone("")
	local := localAddr(r)
	return addr.IsLoopback() || addr == local.Addr() && (port == 0 || port == local.Port()) || a.deps.Own(addr.String(), port)
}

// portOf returns the port of a Host header; 0: it has none.
func portOf(header string) (port uint16, ok bool) {
	_, text, err := net.SplitHostPort(header)
	if err != nil || text == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

// fromOtherPage reports whether a request that may change something comes from a page of another site. Browsers say so by Sec-Fetch-Site or
// Origin, which http.CrossOriginProtection checks; for want of both, by Referer.
func fromOtherPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	referer := r.Header.Get("Referer")
	if referer == "" || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	u, err := url.Parse(referer)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

// hostname returns a Host header without its port, brackets and final dot, in lower case.
func hostname(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// localAddr returns the address and port that the connection of a request was made to.
func localAddr(r *http.Request) netip.AddrPort {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.AddrPort{}
	}
	ap, _ := netip.ParseAddrPort(local.String())
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
