package dnsd

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/lab"
)

// Leases are the leases of DHCP clients. They know nothing of the lab: which names their machines have, the table of the request decides. All
// methods answer from memory and are safe for concurrent use.
type Leases interface {
	// ByAddr returns the lease of an address.
	ByAddr(addr netip.Addr) (Lease, bool)
	// ByName returns the lease of the client with that Hostname. It is called for every name that the lab's domain does not hold, so it must not
	// search long.
	ByName(label string) (Lease, bool)
	// ByMAC returns the last lease of a NIC.
	ByMAC(mac lab.MAC) (Lease, bool)
}

// A Lease is what names follow of a lease.
type Lease struct {
	Addr     netip.Addr
	MAC      lab.MAC
	Hostname string // one lower-case label of letters, digits and hyphens; empty: the client sent none, or another client has that name
}

const (
	arpa4       = "\x07in-addr\x04arpa\x00"
	arpa4Labels = 6 // of the name of an address: four octets, in-addr, arpa
)

// lease answers for the name, or the address, of a DHCP client. It reports false if it is none.
func (r *request) lease(m match, leases Leases) bool {
	if addr, ok := addrOf(r.cur); ok {
		return r.leaseReverse(m, leases, addr)
	}
	addr, ok := r.leased(leases)
	if !ok || !addr.IsValid() {
		return false
	}
	r.fromLease()
	addr = addr.Unmap()
	switch b := addr.As16(); {
	case addr.Is4() && (r.q.qtype == typeA || r.q.qtype == typeANY):
		r.w.rr(answers, r.owner, typeA, leaseTTL, b[12:])
	case addr.Is6() && (r.q.qtype == typeAAAA || r.q.qtype == typeANY):
		r.w.rr(answers, r.owner, typeAAAA, leaseTTL, b[:])
	case m.zone != nil:
		r.negative(m)
	}
	return true
}

// leased returns the address of the host of the lab, or else of the client, that has the name.
func (r *request) leased(leases Leases) (netip.Addr, bool) {
	if nics := r.t.pooled[string(r.cur.bytes())]; nics != nil {
		for _, mac := range nics {
			if l, ok := leases.ByMAC(mac); ok {
				return l.Addr, true
			}
		}
		return netip.Addr{}, false // the name belongs to that host alone
	}
	if r.t.domain == nil || r.cur.labels < 2 || !bytes.Equal(r.cur.suffix(1), r.t.domain) {
		return netip.Addr{}, false
	}
	label := string(r.cur.wire[1 : 1+r.cur.wire[0]])
	l, ok := leases.ByName(label)
	return l.Addr, ok && r.t.lab.HostByMAC(l.MAC) == nil && r.t.mayBeClients(label)
}

// leaseName returns the name of a lease's machine, with a dot at the end; empty: it has none by the lease. A host of the lab has its own names,
// whatever it calls itself; none of them follows a lease but that of the NIC whose address its name has.
func (t *Table) leaseName(l Lease) string {
	switch h := t.lab.HostByMAC(l.MAC); {
	case h == nil:
		return t.ClientName(l.Hostname)
	case slices.Contains(h.LeasedMACs(), l.MAC):
		return h.FQDN + "."
	}
	return ""
}

// ClientName returns the name that a DHCP client has by the label of its host name, with a dot at the end, unless another client has it;
// empty: none.
func (t *Table) ClientName(label string) string {
	if t.domain == nil || label == "" || !t.mayBeClients(label) {
		return ""
	}
	return label + "." + t.domainText
}

// systemName is the first label of the name that the operating system gives this machine. It is the appliance's: admins open the dashboard by it.
var systemName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	label, _, _ := strings.Cut(strings.ToLower(name), ".")
	return label
})

// mayBeClients reports whether a DHCP client may have the name label.<domain>, forward and backward. It is the one place that
// decides it. A name of the lab belongs to the lab, whichever of its domains it is in.
func (t *Table) mayBeClients(label string) bool {
	if lab.ReservedName(label) || label == systemName() || t.lab.Host(label) != nil {
		return false
	}
	wire, err := appendName(make([]byte, 0, maxName), label+"."+t.domainText)
	if err != nil || t.pooled[string(wire)] != nil {
		return false
	}
	var n name
	if _, err := n.parse(wire); err != nil {
		return false
	}
	m := t.match(&n)
	return m.node == nil && m.cut < 0 && m.dname == 0
}

// leaseReverse answers for the reverse name of an address of the lab.
func (r *request) leaseReverse(m match, leases Leases, addr netip.Addr) bool {
	if r.t.domain == nil || !contains(r.t.networks, addr) {
		return false
	}
	l, ok := leases.ByAddr(addr)
	if !ok {
		return false
	}
	called := r.t.leaseName(l)
	if called == "" {
		return false
	}
	r.fromLease()
	target, err := appendName(make([]byte, 0, maxName), called)
	switch {
	case err == nil && (r.q.qtype == typePTR || r.q.qtype == typeANY):
		r.w.rr(answers, r.owner, typePTR, leaseTTL, target)
	case m.zone != nil:
		r.negative(m)
	}
	return true
}

func (r *request) fromLease() {
	r.kind, r.code = kindLease, noError
	if !r.chained {
		r.flags |= flagAA
	}
}

// addrOf returns the address whose reverse name (RFC 1035 section 3.5) n is.
func addrOf(n *name) (netip.Addr, bool) {
	if n.labels != arpa4Labels || string(n.suffix(4)) != arpa4 {
		return netip.Addr{}, false
	}
	var a [4]byte
	for i := range a {
		octet, ok := decimal(n.wire[n.off[i]+1 : n.off[i+1]])
		if !ok {
			return netip.Addr{}, false
		}
		a[3-i] = octet
	}
	return netip.AddrFrom4(a), true
}

// decimal reads an octet, as an address has it.
func decimal(b []byte) (byte, bool) {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || len(b) > 3 || len(b) > 1 && b[0] == '0' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return byte(n), len(b) > 0 && n <= 255
}
