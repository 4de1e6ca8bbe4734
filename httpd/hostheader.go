package httpd

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// addressed reports whether the Host header of a request names this appliance. A page of another site whose name was made to resolve to our
// address (DNS rebinding) has the cookie of no session, but could show whatever needs none, and try tokens.
func (a *Admin) addressed(r *http.Request) bool {
	host := hostname(r.Host)
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || a.deps.Own(host)
	}
	addr = addr.Unmap().WithZone("")
	return addr.IsLoopback() || addr == localAddr(r) || a.deps.Own(addr.String())
}

// hostname returns a Host header without its port, brackets and final dot, in lower case.
func hostname(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// localAddr returns the address that the connection of a request was made to.
func localAddr(r *http.Request) netip.Addr {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}
	}
	ap, _ := netip.ParseAddrPort(local.String())
	return ap.Addr().Unmap().WithZone("")
}
