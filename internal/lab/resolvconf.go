package lab

import (
	"bytes"
	"net/netip"
	"strings"
)

// MaxNameServers bounds the servers that are taken from one resolv.conf.
const MaxNameServers = 8

// NameServers returns the servers of a resolv.conf (resolv.conf(5)). Lines that are something else are skipped.
func NameServers(resolvConf []byte) (servers []netip.AddrPort) {
	for line := range bytes.Lines(resolvConf) {
		f := strings.Fields(string(line))
		if len(f) < 2 || f[0] != "nameserver" || len(servers) == MaxNameServers {
			continue
		}
		if addr, err := netip.ParseAddr(f[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr.Unmap(), 53))
		}
	}
	return servers
}
