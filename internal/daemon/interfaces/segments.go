package interfaces

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// segmentsAge is after how long the addresses of the lab's interfaces are read again. They change when the network is renumbered.
const segmentsAge = 5 * time.Second

// Segments knows which IPv6 addresses are on a lab's own segments, which the lab file does not say: link-local ones of its
// interfaces, and those of prefixes that its interfaces are in. The zero value is ready to use.
type Segments struct {
	cached atomic.Pointer[segmentList]
}

// A segmentList is what was found at a time.
type segmentList struct {
	at       time.Time
	lab      *lab.Lab
	zones    []string // of link-local addresses: names and numbers of interfaces
	prefixes []netip.Prefix
}

// Contain reports whether an IPv6 address is on a segment of l.
func (s *Segments) Contain(l *lab.Lab, a netip.Addr) bool {
	list := s.cached.Load()
	if list == nil || list.lab != l || time.Since(list.at) > segmentsAge {
		list = readSegments(l)
		s.cached.Store(list)
	}
	if a.IsLinkLocalUnicast() {
		return slices.Contains(list.zones, a.Zone())
	}
	return slices.ContainsFunc(list.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// readSegments asks the kernel. An interface that is not there now has no clients.
func readSegments(l *lab.Lab) *segmentList {
	list := &segmentList{at: time.Now(), lab: l}
	for _, n := range l.Networks {
		ifi, err := net.InterfaceByName(n.Interface)
		if n.Interface == "" || err != nil {
			continue
		}
		list.zones = append(list.zones, ifi.Name, strconv.Itoa(ifi.Index))
		prefixes, _ := links.Prefixes(n.Interface)
		for _, p := range prefixes {
			if p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() {
				list.prefixes = append(list.prefixes, p.Masked())
			}
		}
	}
	return list
}
