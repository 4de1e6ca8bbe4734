package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A subnetOf is the subnet of a network for one version of IP. The zero value stands for the subnets of all networks.
type subnetOf struct {
	n   *lab.Network
	six bool
}

// An outsider is an address or range that should be in a subnet and is not.
type outsider struct {
	s          spot
	key        string
	what, want string
	elsewhere  bool // it begins in a subnet of the lab: no subnet is wrong
}

func single(a netip.Addr) lab.Range { return lab.Range{First: a, Last: a} }

// failOutside reports an address that is not in a subnet: at its place, unless a subnet is wrong for all that should be in it.
func (r *resolver) failOutside(of subnetOf, s spot, key string, what lab.Range, want string) {
	text := what.String()
	if what.First == what.Last {
		text = what.First.String()
	}
	elsewhere := lab.FindSubnet(r.bySubnet, what.First) != nil
	r.outsiders[of] = append(r.outsiders[of], outsider{s, key, text, want, elsewhere})
}

// reportOutside reports what failOutside has collected.
func (r *resolver) reportOutside() {
	r.wrongSubnets()
	if len(r.lab.Networks) == 1 {
		if of := (subnetOf{n: r.lab.Networks[0]}); len(r.outsiders[of]) > 0 {
			r.outsiders[of] = append(r.outsiders[of], r.outsiders[subnetOf{}]...)
			delete(r.outsiders, subnetOf{})
		}
	}
	r.failEach(r.outsiders[subnetOf{}], "every network")
	delete(r.outsiders, subnetOf{})
	for of, all := range r.outsiders {
		r.failEach(all, "network "+of.n.Name)
	}
}

func bySpot(a, b outsider) int { return a.s.compare(b.s) }

// failEach reports values outside of where, each at its place.
func (r *resolver) failEach(all []outsider, where string) {
	for _, o := range all {
		r.fail(o.s, o.key, "%s is outside %s: want %s", o.what, where, o.want)
	}
}

// wrongSubnets reports a subnet with nothing in it, instead of what should be. If there is one of IPv4, that is the network which is meant by what
// is outside of every network.
func (r *resolver) wrongSubnets() {
	empty := map[*lab.Network]spot{}
	for i, n := range r.lab.Networks {
		of := subnetOf{n: n}
		used := r.inside[of] || slices.ContainsFunc(r.outsiders[of], func(o outsider) bool { return o.elsewhere })
		if n.Subnet.IsValid() && !used && (len(r.outsiders[of]) > 0 || len(r.lab.Networks) == 1) {
			empty[n] = r.raw.Networks.Entries[i].V.Subnet.spot
		}
		if of.six = true; !r.inside[of] {
			r.wrongSubnet(r.raw.Networks.Entries[i].V.Subnet6.spot, "networks."+n.Name+".subnet6", n.Subnet6, of)
		}
	}
	r.failOverlaps(empty)
	for n, s := range empty {
		meant := []subnetOf{{n: n}}
		if len(empty) == 1 {
			meant = append(meant, subnetOf{})
		}
		r.wrongSubnet(s, "networks."+n.Name+".subnet", n.Subnet, meant...)
	}
}

// failOverlaps reports subnets that overlap: of two, the one with nothing in it. That it overlaps says why.
func (r *resolver) failOverlaps(empty map[*lab.Network]spot) {
	for _, pair := range r.overlaps {
		first, n := pair[0], pair[1]
		if _, wrong := empty[first]; wrong {
			first, n = n, first
		}
		r.fail(r.raw.Networks.byName[n.Name].V.Subnet.spot, "networks."+n.Name+".subnet", "%s overlaps %s of network %s (%s): want subnets that do not overlap",
			n.Subnet, first.Subnet, first.Name, first.Pos)
		if _, wrong := empty[n]; wrong {
			delete(r.outsiders, subnetOf{n: n})
			if len(empty) == 1 {
				delete(r.outsiders, subnetOf{})
			}
		}
	}
}

// wrongSubnet reports the subnet at s, with nothing in it, if several values are outside of what is meant by it.
func (r *resolver) wrongSubnet(s spot, key string, subnet netip.Prefix, meant ...subnetOf) {
	var all []outsider
	for _, of := range meant {
		all = append(all, r.outsiders[of]...)
	}
	if len(all) < 2 {
		return
	}
	slices.SortFunc(all, bySpot)
	for _, of := range meant {
		delete(r.outsiders, of)
	}
	r.fail(s, key, "nothing is in %s, but outside of it are %d values (%s): want the subnet that they are in", subnet, len(all), r.placesOf(all))
}

// placesOf names the first of some addresses, with their places.
func (r *resolver) placesOf(all []outsider) string {
	const few = 3
	var texts []string
	for _, o := range all[:min(few, len(all))] {
		texts = append(texts, fmt.Sprintf("%s at %s", o.what, r.pos(o.s)))
	}
	if more := len(all) - few; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}
