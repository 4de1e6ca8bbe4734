package load

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
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
			Pos: r.pos(e.spot), Name: e.Name, Kind: e.V.Kind.or(lab.Plain), Domain: strings.ToLower(e.Name) + "." + base,
			Address: e.V.Address.V.Addr, Ingress: e.V.Ingress.or(e.V.Address.V).Addr, EtcdSRV: bool(e.V.EtcdSRV.V), SNI: bool(e.V.SNI.V), Names: !bool(e.V.Balance.or(true)), Log: e.V.Log.or(lab.LogNone),
		}
		c.API = c.Address
		c.Health = r.clusterHealth(e, c, key)
		c.Kubeconfig = r.path(string(e.V.Kubeconfig.V))
		if e.V.Kubeconfig.ok() && c.Kind != lab.OpenShift {
			r.fail(e.V.Kubeconfig.spot, key+".kubeconfig", "is for kind openshift, whose bootstrap machine reports there that it is complete")
		}
		if c.Names && c.SNI {
			r.fail(e.V.SNI.spot, key+".sni", "needs a balancer, which is off (%s): want one of the two", r.pos(e.V.Balance.spot))
		}
		if e.V.Ingress.ok() && !e.V.Address.set() {
			r.fail(e.V.Ingress.spot, key+".ingress", "needs address: want both")
		}
		if e.V.Log.ok() && (c.Names || c.Kind == lab.Plain || !e.V.Address.set()) {
			r.fail(e.V.Log.spot, key+".log", "needs a balancer: want address, and a kind that has services")
		}
		r.clusterDomain(e, c, base)
		r.clusterAddress(c, &e.V.Address, key+".address")
		r.clusterAddress(c, &e.V.Ingress, key+".ingress")
		r.clusters[e.Name] = c
		r.lab.Clusters = append(r.lab.Clusters, c)
	}
	r.sharedAddresses()
}

// clusterHealth returns whether the names of a cluster follow its members, and reports what excludes it.
func (r *resolver) clusterHealth(e *entry[rawCluster], c *lab.Cluster, key string) bool {
	raw := &e.V
	switch {
	case !bool(raw.Health.V):
		return false
	case raw.Address.set():
		r.fail(raw.Health.spot, key+".health", "is for clusters without address (%s): want one of the two", r.pos(raw.Address.spot))
	case c.SNI:
		r.fail(raw.Health.spot, key+".health", "excludes sni (%s): want one of the two", r.pos(raw.SNI.spot))
	case c.Kind == lab.Plain:
		r.fail(raw.Health.spot, key+".health", "is for kind openshift and kubernetes: a cluster of kind plain has no services")
	default:
		return true
	}
	return false
}

// clusterAddress reports an address of c that nothing in the lab's networks can have.
func (r *resolver) clusterAddress(c *lab.Cluster, v *scalar[addr4], key string) {
	if !v.ok() || r.noSubnets || len(r.bySubnet) == 0 {
		return // a lab of names alone may name what it likes
	}
	a := v.V.Addr
	switch n := lab.FindSubnet(r.bySubnet, a); {
	case n == nil:
		r.failOutside(subnetOf{}, v.spot, key, single(a), "an address inside "+r.subnets()+", or a network around it (with dhcp: off if DHCP shall not serve it)")
	case !r.hostAddress(n, a, v.spot, key):
	case a == n.Router && a != n.Address && c.Kind != lab.Plain:
		r.fail(v.spot, key, "%s is the router of network %s (%s): want another one", a, n.Name, n.Pos)
	}
}

// clusterDomain reports a domain that is another cluster's, or is too long for the names derived from it.
func (r *resolver) clusterDomain(e *entry[rawCluster], c *lab.Cluster, base string) {
	if name, parent, _ := strings.Cut(strings.ToLower(base), "."); e.V.Domain.ok() && name == strings.ToLower(e.Name) && parent != "" {
		r.lab.Warnings.Addf(r.pos(e.V.Domain.spot), "clusters."+e.Name+".domain", "begins with the name of the cluster, which is added: its names are api.%s and so on; want domain: %s", c.Domain, parent)
	}
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

func (r *resolver) noSRV(c *lab.Cluster) {
	r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name+".etcd_srv", "the cluster has no host with role control-plane and an ip: no SRV record is made")
}

// clusterMembers warns of clusters that cannot come up with the hosts that they have, and of roles that mean nothing to them.
func (r *resolver) clusterMembers() {
	for i, c := range r.lab.Clusters {
		switch raw := &r.raw.Clusters.Entries[i].V; {
		case c.Kind == lab.Plain:
			r.kindForgotten(c, raw)
			if c.EtcdSRV && !slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleControlPlane && r.memberAddr(c, h).IsValid() }) {
				r.noSRV(c)
			}
			continue
		case c.Names: // a cluster that provisions its machines itself knows their roles
			r.vipOfHost(c, &raw.Address, "address")
			r.vipOfHost(c, &raw.Ingress, "ingress")
			continue
		}
		if len(c.Hosts) > 0 {
			r.controlPlane(c)
		} else if c.EtcdSRV {
			r.noSRV(c)
		} else {
			r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name, "no host has cluster: %s: it gets no balancers and no machines", c.Name)
		}
		r.addressOfHost(c)
		for _, h := range c.Hosts {
			r.memberRole(c, h)
		}
		r.otherWorkers(c)
	}
}

// kindForgotten warns of a cluster whose address has no use, though its hosts have roles of one that would use it.
func (r *resolver) kindForgotten(c *lab.Cluster, raw *rawCluster) {
	members := slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleBootstrap || h.Role == lab.RoleControlPlane })
	if !raw.Kind.set() && raw.Address.ok() && members && !r.incomplete["clusters."+c.Name] {
		r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name+".kind", "is missing, so the cluster is plain: its address makes no api names and no balancers; want "+
			"kind: openshift, kubernetes or talos, or kind: plain if that is meant")
	}
}

// vipOfHost warns of an address that the cluster moves between its machines itself, and that is the ip of one. The address of a single node is its own.
func (r *resolver) vipOfHost(c *lab.Cluster, v *scalar[addr4], key string) {
	h := r.hostByIP[v.V.Addr]
	if !v.ok() || h == nil || h.Cluster != c {
		return
	}
	if node, members := onlyMember(c); members == 1 && h == node {
		return
	}
	r.lab.Warnings.Addf(r.pos(v.spot), "clusters."+c.Name+"."+key, "%s is the ip of host %s (%s): with balancer: off the cluster's own load balancer "+
		"needs an address that no machine has; want a free one", v.V, h.Name, h.Pos)
}

// addressOfHost warns of a cluster whose address is reserved for one of its machines, though it has several for the control plane: it gets no
// balancers, and one machine all the traffic.
func (r *resolver) addressOfHost(c *lab.Cluster) {
	h := r.hostByIP[c.Address]
	if _, members := onlyMember(c); h == nil || r.ours(c.Address) || members == 1 && h.Role == lab.RoleControlPlane {
		r.ingressOfHost(c)
	} else {
		r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name+".address", "%s is the ip of host %s (%s): no balancer of the cluster listens there; want another address", c.Address, h.Name, h.Pos)
	}
}

// ingressOfHost warns of a cluster whose *.apps leads to one of its machines, though others are workers.
func (r *resolver) ingressOfHost(c *lab.Cluster) {
	h := r.hostByIP[c.Ingress]
	if c.Kind != lab.OpenShift || h == nil || r.ours(c.Ingress) {
		return
	}
	idle := 0
	for _, w := range c.Hosts {
		if w != h && w.Role == lab.RoleWorker && r.memberAddr(c, w).IsValid() {
			idle++
		}
	}
	key, want := "ingress", "want another ingress"
	if c.Ingress == c.Address {
		key, want = "address", "want an address of the cluster's own, or ingress with one"
	}
	if idle > 0 {
		r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name+"."+key, "%s is the ip of host %s (%s): *.apps.%s leads to it alone, no balancer is made for ports "+
			"443 and 80, and the routers of %s get nothing; %s, where balancers listen",
			c.Ingress, h.Name, h.Pos, c.Domain, lab.Plural(idle, "worker"), want)
	}
}

// controlPlane warns of a control plane that cannot form.
func (r *resolver) controlPlane(c *lab.Cluster) {
	key, members, bootstraps := "clusters."+c.Name, 0, 0
	misspelled := map[string]bool{} // roles that memberRole reports
	for _, h := range c.Hosts {
		switch {
		case h.Role == lab.RoleBootstrap:
			bootstraps++
		case h.Role == lab.RoleControlPlane && r.memberAddr(c, h).IsValid():
			members++
		default:
			misspelled[likelyRole(h)] = true
		}
	}
	switch {
	case misspelled[lab.RoleControlPlane]:
	case members == 0:
		follows := ""
		if c.Address.IsValid() {
			follows = ": nothing answers at api." + c.Domain
			if bootstraps > 0 {
				follows += " after the bootstrap"
			}
		}
		r.lab.Warnings.Addf(c.Pos, key, "no host of the cluster has role control-plane and an ip%s", follows)
	case members%2 == 0:
		r.lab.Warnings.Addf(c.Pos, key, "%d hosts have role control-plane: etcd with %[1]d members survives no more failures than with %d; want 1, 3 or 5", members, members-1)
	}
	c.InPlace = r.bootsInPlace(c)
	if c.LacksBootstrap() && !misspelled[lab.RoleBootstrap] {
		r.lab.Warnings.Addf(c.Pos, key, "no host has role bootstrap: until the cluster is installed, its machines wait for https://api-int.%s:22623, which "+
			"nothing serves; want one more host, with role bootstrap and the profile of the others%s",
			c.Domain, singleNodeAdvice(c))
		c.NoBootstrap = r.lab.Warnings[len(r.lab.Warnings)-1]
	}
	if bootstraps > 1 {
		r.lab.Warnings.Addf(c.Pos, key, "%d hosts have role bootstrap: want one", bootstraps)
	}
}

// bootsInPlace reports whether the only control-plane host of an OpenShift cluster is its own bootstrap machine: its document does not merge the
// machine configuration that a bootstrap machine serves. A document that cannot be read may do so; where the cluster's address is the host's
// own, which is the form of a single node, it is believed not to.
func (r *resolver) bootsInPlace(c *lab.Cluster) bool {
	node, members := onlyMember(c)
	if members != 1 || node.Profile == nil || node.Profile.Config == "" {
		return false
	}
	name, ok := lab.ProfilePath{Text: node.Profile.Config}.ForRole(node.WrittenRole())
	document, err := regular.Read(r.inFiles(name), regular.Small)
	if !ok || err != nil {
		return r.hostByIP[c.Address] == node
	}
	return !bytes.Contains(document, fmt.Appendf(nil, ":%d/", portMachineConfig))
}

// onlyMember returns the last host of the control plane, and how many there are.
func onlyMember(c *lab.Cluster) (node *lab.Host, members int) {
	for _, h := range c.Hosts {
		if h.Role == lab.RoleControlPlane {
			node, members = h, members+1
		}
	}
	return node, members
}

// singleNodeAdvice ends the warning of a cluster without a bootstrap machine if it has one control-plane host.
func singleNodeAdvice(c *lab.Cluster) string {
	if _, members := onlyMember(c); members == 1 {
		return ", or a document of bootstrap in place, which does not merge from there"
	}
	return ""
}

// singleNodes lets api and api-int of single-node clusters lead to the appliance until the bootstrap machine has left: the
// cluster's address is that of the node, which serves nothing until the bootstrap has served it its configuration. The balancers there
// use the bootstrap until the node answers.
func (r *resolver) singleNodes() {
	sharing := map[netip.Addr][]*lab.Cluster{}
	for _, c := range r.lab.Clusters {
		node := r.hostByIP[c.Address]
		n := lab.FindSubnet(r.bySubnet, c.Address)
		boots := slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleBootstrap && r.memberAddr(c, h).IsValid() })
		if c.Kind != lab.OpenShift || c.Names || !c.Address.IsValid() || node == nil || node.Cluster != c || node.Role != lab.RoleControlPlane || !boots {
			continue
		}
		if n == nil || !n.Address.IsValid() {
			r.lab.Warnings.Addf(c.Pos, "clusters."+c.Name+".address", "api-int.%s is the node itself, which cannot get its configuration from the bootstrap "+
				"there: want the appliance's address in its network", c.Domain)
			continue
		}
		c.API = n.Address
		sharing[c.API] = append(sharing[c.API], c)
	}
	for _, all := range sharing {
		for _, c := range all {
			c.SNI = c.SNI || len(all) > 1
		}
	}
}

// memberRole warns of a host that a cluster's balancers leave out.
func (r *resolver) memberRole(c *lab.Cluster, h *lab.Host) {
	key := "hosts." + h.Name
	without := !r.memberAddr(c, h).IsValid() && !unaddressed(h) // which is a warning already
	switch h.Role {
	case lab.RoleControlPlane, lab.RoleBootstrap:
		if h.Role == lab.RoleBootstrap {
			r.bootstrapProfile(c, h)
		}
		if without {
			r.lab.Warnings.Addf(h.Pos, key, "has no ip: the balancers of api.%s leave it out", c.Domain)
		}
	case lab.RoleAppliance:
	case lab.RoleWorker:
		if without && c.Kind == lab.OpenShift {
			r.lab.Warnings.Addf(h.Pos, key, "has no ip: the balancers of *.apps.%s leave it out", c.Domain)
		}
	case "":
		r.lab.Warnings.Addf(h.Pos, key, "has no role: no balancer of cluster %s uses it; want role: control-plane, worker or bootstrap", c.Name)
	default:
		if meant := likelyRole(h); meant != "" {
			r.lab.Warnings.Addf(r.pos(r.raw.Hosts.byName[h.Name].V.Role.spot), key+".role", "%q means nothing to cluster %s: did you mean %s?", h.WrittenRole(), c.Name, meant)
		}
	}
}

// bootstrapProfile warns of a bootstrap machine that boots nothing, though others of its cluster boot from the lab.
func (r *resolver) bootstrapProfile(c *lab.Cluster, h *lab.Host) {
	boots := slices.ContainsFunc(c.Hosts, func(m *lab.Host) bool { return m.Role == lab.RoleControlPlane && m.Profile != nil })
	if boots && !r.raw.Hosts.byName[h.Name].V.Profile.set() && !r.incomplete["hosts."+h.Name] {
		r.lab.Warnings.Addf(h.Pos, "hosts."+h.Name, "has no profile: bootlab up waits for the bootstrap machine, which boots nothing; want the profile of the control plane")
	}
}

// workerWords are words of other programs for a worker, in lower case.
var workerWords = []string{"compute", "node", "infra"}

// otherWorkers warns of hosts with such a word as their role in a cluster that has no worker.
func (r *resolver) otherWorkers(c *lab.Cluster) {
	var first *lab.Host
	others := 0
	for _, h := range c.Hosts {
		switch {
		case h.Role == lab.RoleWorker || likelyRole(h) == lab.RoleWorker:
			return
		case slices.Contains(workerWords, strings.ToLower(h.Role)) && first == nil:
			first = h
		case slices.Contains(workerWords, strings.ToLower(h.Role)):
			others++
		}
	}
	if first == nil {
		return
	}
	more, follows := "", ""
	if others > 0 {
		more = fmt.Sprintf(" (and of %s)", lab.Plural(others, "other host"))
	}
	if c.Kind == lab.OpenShift {
		follows = fmt.Sprintf(": *.apps.%s leads to the control plane, and no machine gets worker.ign", c.Domain)
	}
	r.lab.Warnings.Addf(r.pos(r.raw.Hosts.byName[first.Name].V.Role.spot), "hosts."+first.Name+".role",
		"%q%s means nothing to cluster %s, which has no worker%s; did you mean worker?", first.WrittenRole(), more, c.Name, follows)
}

// likelyRole returns the role of a cluster's member that a host's role, which is none, was probably meant to be; empty: none.
func likelyRole(h *lab.Host) string {
	if _, known := roleSynonyms[strings.ToLower(h.Role)]; known || h.Role == "" {
		return ""
	}
	if near := nearRole(h); near != "" {
		return near
	}
	word := strings.ToLower(h.Role)
	switch {
	case strings.Contains(word, "master"), strings.Contains(word, "control"):
		return lab.RoleControlPlane
	case strings.Contains(word, "worker"):
		return lab.RoleWorker
	case strings.Contains(word, "bootstrap"):
		return lab.RoleBootstrap
	}
	return ""
}

// nearRole returns the role that differs from that of h in a few letters; empty: none.
func nearRole(h *lab.Host) string {
	if _, known := roleSynonyms[strings.ToLower(h.Role)]; known {
		return ""
	}
	return roleSynonyms[lab.Nearest(h.Role, []string{lab.RoleControlPlane, lab.RoleBootstrap, lab.RoleWorker, "master", "controlplane"})]
}
