package load

import (
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

func (r *resolver) clusterList() {
	slab := make([]lab.Cluster, len(r.raw.Clusters.Entries))
	for i, e := range r.raw.Clusters.Entries {
		c, key := &slab[i], "clusters."+e.Name
		if !isLabels(e.Name) {
			r.fail(e.spot, key, "%q is not a cluster's name: want letters, digits and '-', as it becomes part of DNS names", e.Name)
		}
		base := r.lab.Domain
		if e.V.Domain.ok() {
			base = r.plainDomain(&e.V.Domain, key+".domain")
		}
		*c = lab.Cluster{
			Pos: r.pos(e.spot), Name: e.Name, Kind: e.V.Kind.or(lab.Plain), Base: base, Domain: strings.ToLower(e.Name) + "." + base,
			Address: e.V.Address.V.Addr, Ingress: e.V.Ingress.or(e.V.Address.V).Addr, EtcdSRV: bool(e.V.EtcdSRV.V), SNI: bool(e.V.SNI.V),
		}
		if e.V.Ingress.ok() && !e.V.Address.set() {
			r.fail(e.V.Ingress.spot, key+".ingress", "needs address: want both")
		}
		r.clusterDomain(e, c)
		r.clusterAddress(c, &e.V.Address, key+".address")
		r.clusterAddress(c, &e.V.Ingress, key+".ingress")
		r.clusters[e.Name] = c
		r.lab.Clusters = append(r.lab.Clusters, c)
	}
	r.sharedAddresses()
}

// clusterAddress reports an address of c that nothing in the lab's networks can have.
func (r *resolver) clusterAddress(c *lab.Cluster, v *scalar[addr4], key string) {
	if !v.ok() || r.noSubnets || len(r.bySubnet) == 0 {
		return // a lab of names alone may name what it likes
	}
	a := v.V.Addr
	switch n := lab.FindSubnet(r.bySubnet, a); {
	case n == nil:
		r.fail(v.spot, key, "%s is outside every network: want an address inside %s, or a network around it (with dhcp: off if DHCP shall not serve it)", a, r.subnets())
	case !r.hostAddress(n, a, v.spot, key):
	case a == n.Router && a != n.Address && c.Kind != lab.Plain:
		r.fail(v.spot, key, "%s is the router of network %s (%s): want another one", a, n.Name, n.Pos)
	}
}

// clusterDomain reports a domain that is another cluster's, or is too long for the names derived from it.
func (r *resolver) clusterDomain(e *entry[rawCluster], c *lab.Cluster) {
	if longest := "_etcd-server-ssl._tcp." + c.Domain; len(longest) > maxName {
		r.fail(e.spot, "clusters."+e.Name, "the name %s has %d characters: want at most %d", longest, len(longest), maxName)
	}
	for _, other := range r.lab.Clusters {
		if other.Domain == c.Domain {
			r.fail(e.spot, "clusters."+e.Name, "the domain %s is already used by cluster %s (%s): want another name or domain", c.Domain, other.Name, other.Pos)
		}
	}
}

// sharedAddresses reports an address that two clusters claim, unless both say sni.
func (r *resolver) sharedAddresses() {
	type owner struct {
		c   *lab.Cluster
		at  spot
		key string
	}
	first := map[netip.Addr]owner{}
	for i, e := range r.raw.Clusters.Entries {
		c := r.lab.Clusters[i]
		if c.Kind == lab.Plain {
			continue
		}
		for _, o := range []owner{{c, e.V.Address.spot, "address"}, {c, e.V.Ingress.spot, "ingress"}} {
			a := c.Address
			if o.key == "ingress" {
				a = c.Ingress
			}
			if !a.IsValid() || !o.at.set() {
				continue
			}
			f, taken := first[a]
			if !taken {
				first[a] = o
			}
			if taken && f.c != c && !(f.c.SNI && c.SNI) {
				r.fail(o.at, "clusters."+c.Name+"."+o.key, "%s is already used by cluster %s (%s): want another one, or sni: true in both", a, f.c.Name, r.pos(f.at))
			}
		}
	}
}
