package hostheader

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Addressed reports whether the Host header of a request names this appliance: loopback, the address that the request came to, or what own
// knows, which gets a name in lower case, or an address, and a port; 0: none.
func Addressed(r *http.Request, own func(host string, port uint16) bool) bool {
	host := hostname(r.Host)
	port, ok := portOf(r.Host)
	if !ok {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || own(host, port)
	}
	addr = addr.Unmap().WithZone("")
	local := localAddr(r)
	return addr.IsLoopback() || addr == local.Addr() && (port == 0 || port == local.Port()) || own(addr.String(), port)
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
