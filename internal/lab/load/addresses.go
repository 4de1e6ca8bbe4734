package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// An addr4 is an IPv4 address.
type addr4 struct{ netip.Addr }

func (v *addr4) parse(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return fmt.Errorf("%q is not an IPv4 address: want one like 192.168.16.10", s)
	}
	v.Addr = a
	return nil
}

func (addr4) spec() spec { return what("IPv4 address", ipv4Pattern) }

// An addr6 is an IPv6 address without a zone.
type addr6 struct{ netip.Addr }

func (v *addr6) parse(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("%q is not an IPv6 address: want one like fd00:16::21", s)
	}
	v.Addr = a
	return nil
}

func (addr6) spec() spec { return what("IPv6 address", `^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$`) }

// A prefix4 is an IPv4 prefix without host bits.
type prefix4 struct{ netip.Prefix }

func (v *prefix4) parse(s string) error {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || !p.Addr().Is4():
		return fmt.Errorf("%q is not an IPv4 prefix: want one like 192.168.16.0/24", s)
	case p != p.Masked():
		return fmt.Errorf("%q has host bits set: want %s", s, p.Masked())
	}
	v.Prefix = p
	return nil
}

func (prefix4) spec() spec { return what("IPv4 prefix", `^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$`) }

// A prefix6 is an IPv6 prefix without host bits.
type prefix6 struct{ netip.Prefix }

func (v *prefix6) parse(s string) error {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("%q is not an IPv6 prefix: want one like fd00:16::/64", s)
	case p != p.Masked():
		return fmt.Errorf("%q has host bits set: want %s", s, p.Masked())
	}
	v.Prefix = p
	return nil
}

func (prefix6) spec() spec { return what("IPv6 prefix", `^[0-9A-Fa-f:]*:[0-9A-Fa-f:]*/[0-9]{1,3}$`) }

// A source is a prefix of clients or peers; a single address stands for itself.
type source struct{ netip.Prefix }

func (v *source) parse(s string) error {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		v.Prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is neither a prefix nor an address: want one like 192.168.130.0/24 or 192.168.130.10", s)
	case p != p.Masked():
		return fmt.Errorf("%q has host bits set: want %s", s, p.Masked())
	}
	v.Prefix = p
	return nil
}

func (source) spec() spec { return what("prefix or address", `^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$`) }

func parseRange(s string) (lab.Range, error) {
	first, last, ok := strings.Cut(s, "-")
	if from, to, comma := strings.Cut(s, ","); comma { // as in dnsmasq.conf
		if meant, err := parseRange(from + "-" + to); err == nil {
			return lab.Range{}, fmt.Errorf("%q is not a range: did you mean %s?", s, meant)
		}
	}
	var a, b addr4
	if !ok || a.parse(strings.TrimSpace(first)) != nil || b.parse(strings.TrimSpace(last)) != nil {
		return lab.Range{}, fmt.Errorf("%q is not a range: want two IPv4 addresses like 192.168.16.130-192.168.16.135", s)
	}
	if near := netip.PrefixFrom(a.Addr, 24).Contains(b.Addr); b.Less(a.Addr) && !near { // more likely a wrong digit
		return lab.Range{}, fmt.Errorf("%q ends before it begins: want two addresses of the network, the lower one first", s)
	}
	if b.Less(a.Addr) {
		return lab.Range{}, fmt.Errorf("%q ends before it begins: want %s-%s", s, b, a)
	}
	return lab.Range{First: a.Addr, Last: b.Addr}, nil
}

func rangeSpec() spec {
	return what("range of IPv4 addresses", `^[0-9]{1,3}(\.[0-9]{1,3}){3} *- *[0-9]{1,3}(\.[0-9]{1,3}){3}$`)
}

// A listen is a host:port to listen on. Without a host its address is invalid: the lab's own addresses and loopback.
type listen struct{ netip.AddrPort }

func (v *listen) parse(s string) error {
	host, number, ok := cutPort(s)
	n, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil || n == 0 {
		return fmt.Errorf("%q is not an address to listen on: want one like :8080 or 192.168.16.1:8080", s)
	}
	var a netip.Addr
	if host == "*" {
		return fmt.Errorf("%q is not an address to listen on: want 0.0.0.0:%[2]s for every IPv4 address, or [::]:%[2]s for every address", s, number)
	}
	if host != "" {
		if a, err = netip.ParseAddr(host); err != nil || a.Zone() != "" {
			return fmt.Errorf("%q is not an address to listen on: %q is not an IP address", s, host)
		}
	}
	v.AddrPort = netip.AddrPortFrom(a.Unmap(), uint16(n))
	return nil
}

func (v listen) endpoint() netip.AddrPort { return v.AddrPort }

func (listen) spec() spec {
	return what("address to listen on, such as :8080 (the lab's own addresses and loopback) or 192.168.16.1:8080", `^([0-9.]+|\[[0-9A-Fa-f:.]+\])?:[0-9]{1,5}$`)
}

// A listenOrOff is a listen, or the word off, which has port 0.
type listenOrOff struct{ listen }

func (v *listenOrOff) parse(s string) error {
	if s == "off" {
		return nil
	}
	if err := v.listen.parse(s); err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	return nil
}

func (listenOrOff) spec() spec {
	s := what("address to listen on, such as :53 (the lab's own addresses and loopback) or 192.168.16.1:53, or off", `^(off|([0-9.]+|\[[0-9A-Fa-f:.]+\])?:[0-9]{1,5})$`)
	s["type"] = []string{"string", "number", "boolean"} // what a YAML 1.1 reader makes of an unquoted off
	return s
}

// A bind is where a balancer listens: a listen, or one with a range of ports. Without a host it is every IPv4 address.
type bind struct{ lab.Bind }

func (v *bind) parse(s string) error {
	first, last, ranged := s, "", false
	if i := strings.LastIndexByte(s, '-'); i > strings.LastIndexByte(s, ':') {
		first, last, ranged = s[:i], s[i+1:], true
	}
	var from listen
	if err := from.parse(first); err != nil {
		return err
	}
	v.Bind = lab.BindTo(netip.AddrPortFrom(from.Addr(), from.Port()))[0]
	if !v.Addr.IsValid() {
		v.Addr = netip.IPv4Unspecified()
	}
	if !ranged {
		return nil
	}
	n, err := strconv.ParseUint(last, 10, 16)
	if err != nil || n < uint64(v.First) {
		return fmt.Errorf("%q is not a range of ports: want one like 192.168.16.10:30000-32767", s)
	}
	v.Last = uint16(n)
	return nil
}

func (bind) spec() spec {
	return what("address to listen on, such as 192.168.16.10:80, or with a range of ports, such as 192.168.16.10:30000-32767", `^([0-9.]+|\[[0-9A-Fa-f:.]+\])?:[0-9]{1,5}(-[0-9]{1,5})?$`)
}

// cutPort splits host:port and [host]:port.
func cutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	host, port = s[:i], s[i+1:]
	inner, bracketed := strings.CutPrefix(host, "[")
	if !bracketed {
		return host, port, !strings.Contains(host, ":")
	}
	host, ok = strings.CutSuffix(inner, "]")
	return host, port, ok
}

// A nameserver is an address with a port, 53 by default.
type nameserver struct{ netip.AddrPort }

func (v *nameserver) parse(s string) error {
	if a, err := netip.ParseAddr(s); err == nil {
		v.AddrPort = netip.AddrPortFrom(a.Unmap(), 53)
		return nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 {
		return fmt.Errorf("%q is not a name server: want an address like 9.9.9.9 or 10.0.0.53:5353", s)
	}
	v.AddrPort = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	return nil
}

func (nameserver) spec() spec {
	return what("address, or address:port (53 by default)", `^[0-9A-Fa-f:.\[\]]+$`)
}

// An access is an address or prefix, a key of dns.keys, or both.
type access struct{ lab.Access }

func (v *access) parse(s string) error {
	from, key, err := cutKey(s)
	if err != nil {
		return err
	}
	if v.Key = key; from == "" {
		return nil
	}
	var src source
	if err := src.parse(from); err != nil {
		if key == "" && !strings.ContainsAny(from, ".:/ ") {
			return fmt.Errorf("%q is neither a prefix nor an address: did you mean 'key %[1]s'?", from)
		}
		return err
	}
	v.From = src.Prefix
	return nil
}

func (access) spec() spec {
	return what("prefix or address, key NAME, or both", `^([0-9A-Fa-f:.]+(/[0-9]{1,3})?)?\s*(key\s+\S+)?$`)
}

// A secondary is a name server, and perhaps the key of dns.keys that it shares.
type secondary struct{ lab.Secondary }

func (v *secondary) parse(s string) error {
	addr, key, err := cutKey(s)
	if err != nil {
		return err
	}
	var n nameserver
	if err := n.parse(addr); err != nil {
		return err
	}
	v.Secondary = lab.Secondary{Addr: n.AddrPort, Key: key}
	return nil
}

func (secondary) spec() spec {
	return what("address, or address:port (53 by default), and perhaps key NAME", `^[0-9A-Fa-f:.\[\]]+(\s+key\s+\S+)?$`)
}

// cutKey splits "ADDRESS key NAME", of which either part may be missing. The name is in lower case, with a final dot.
func cutKey(s string) (rest, key string, err error) {
	f := strings.Fields(s)
	if n := len(f); n >= 2 && f[n-2] == "key" {
		return strings.Join(f[:n-2], " "), keyName(f[n-1]), nil
	}
	if len(f) > 1 || slices.Contains(f, "key") {
		return "", "", fmt.Errorf("%q is not an address, a key, or both: want one like 192.168.130.10, key ns2, or 192.168.130.10 key ns2", s)
	}
	return s, "", nil
}

// keyName returns the name of a TSIG key as it is compared.
func keyName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) + "." }

// A tlsServer is an address with a port, 853 by default (RFC 7858 section 3.1).
type tlsServer struct{ netip.AddrPort }

func (v *tlsServer) parse(s string) error {
	if a, err := netip.ParseAddr(s); err == nil {
		v.AddrPort = netip.AddrPortFrom(a.Unmap(), 853)
		return nil
	}
	var n nameserver
	err := n.parse(s)
	v.AddrPort = n.AddrPort
	return err
}

func (tlsServer) spec() spec {
	return what("address, or address:port (853 by default)", `^[0-9A-Fa-f:.\[\]]+$`)
}

// An upstream is a nameserver, or the path of a file that names some.
type upstream struct {
	nameserver
	file string
}

func (v *upstream) parse(s string) error {
	if strings.Contains(s, "/") {
		v.file = s
		return nil
	}
	if err := v.nameserver.parse(s); err != nil {
		return fmt.Errorf("%w, or a file like /etc/resolv.conf", err)
	}
	return nil
}

func (upstream) spec() spec {
	return what("address, address:port (53 by default), or the path of a resolv.conf", `^([0-9A-Fa-f:.\[\]]+|.*/.*)$`)
}
