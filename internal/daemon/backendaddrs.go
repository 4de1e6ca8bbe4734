package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/dnsd"
)

// backendAddresses finds the addresses of backends that the lab file gives none, for lbproxy.
type backendAddresses struct{ d *Daemon }

// Lease returns the address that the NIC has leased which the name of a host leads to.
func (b backendAddresses) Lease(host string) netip.Addr {
	l := b.d.current.Load().Lab
	h := l.Host(host)
	if h == nil {
		return netip.Addr{}
	}
	addr, _ := b.d.nicAddrs(l).OfHost(h.Interfaces()[h.Named])
	return addr
}

// systemTTL is how long the answers of the system's resolver hold, which does not say it: lbproxy looks no name up more often.
const systemTTL = 5 * time.Second

// Lookup returns the addresses of a name. It is an error if one is not that of another machine: the owner of the zone could reach what
// listens on this one alone.
func (b backendAddresses) Lookup(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	addrs, ttl, err := b.resolve(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	for _, a := range addrs {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			return nil, 0, fmt.Errorf("%s has the address %s, which is not that of another machine", name, a)
		}
	}
	return addrs, ttl, nil
}

// resolve asks our own name server, without the network, so that names of the lab and forwarded zones are known; where that is off, the
// system's resolver.
func (b backendAddresses) resolve(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error) {
	if len(b.d.current.Load().Lab.Appliance.DNS) == 0 {
		addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		return addrs, systemTTL, err
	}
	var errs []error
	for _, rtype := range []string{"A", "AAAA"} {
		e, err := b.d.dns.Explain(ctx, dnsd.Question{Name: name, Type: rtype, From: netip.AddrFrom4([4]byte{127, 0, 0, 1})})
		if err == nil && e.Code != "NOERROR" {
			err = fmt.Errorf("%s %s: the name server answers %s", name, rtype, e.Code)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		some, holds := addressesOf(name, e.Records)
		if len(some) > 0 && (ttl == 0 || holds < ttl) {
			ttl = holds
		}
		addrs = append(addrs, some...)
	}
	if len(errs) > 0 { // half of the addresses would be a change that is none
		return nil, 0, errors.Join(errs...)
	}
	return addrs, ttl, nil
}

// addressesOf returns the addresses that zone-file lines give a name, by CNAMEs too, and the lowest TTL on the way.
func addressesOf(name string, lines []string) (addrs []netip.Addr, ttl time.Duration) {
	owner := strings.ToLower(strings.TrimSuffix(name, ".")) + "."
	for _, line := range lines { // a CNAME stands before what it leads to
		f := strings.Fields(line)
		if len(f) < 5 || !strings.EqualFold(f[0], owner) {
			continue
		}
		seconds, err := strconv.ParseUint(f[1], 10, 31)
		if err != nil {
			continue
		}
		switch a, err := netip.ParseAddr(f[4]); {
		case f[3] == "CNAME":
			owner = strings.ToLower(f[4])
		case err != nil || f[3] != "A" && f[3] != "AAAA":
			continue
		default:
			addrs = append(addrs, a)
		}
		if holds := time.Duration(seconds) * time.Second; ttl == 0 || holds < ttl {
			ttl = holds
		}
	}
	return addrs, ttl
}
