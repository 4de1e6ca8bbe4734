package load

import (
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// The ports of a Kubernetes API, of OpenShift's machine configuration, of ingress, and of the ingress router's health.
const (
	portAPI           = 6443
	portMachineConfig = 22623
	portHTTPS         = 443
	portHTTP          = 80
	portRouterHealth  = 1936
	portTalos         = 50000 // of Talos' own API
)

// deriveBalancers adds the balancers of clusters.
func (r *resolver) deriveBalancers() {
	for _, c := range r.lab.Clusters {
		if c.Kind == lab.Plain {
			continue
		}
		r.deriveAPI(c)
		if c.Kind == lab.Talos {
			r.deriveTalos(c)
		}
		if c.Kind == lab.OpenShift {
			r.deriveMachineConfig(c)
			r.deriveIngress(c)
		}
	}
}

// ours reports whether the appliance can listen on a cluster's address. It can unless the address is reserved for a
// host: then traffic goes straight to that machine (a single-node cluster, or ingress on its only worker). The host
// with role appliance is the daemon itself.
func (r *resolver) ours(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	h := r.hostByIP[a]
	return h == nil || h.Role == lab.RoleAppliance
}

// memberAddr returns the address of h as a member of c: that in the network of the cluster's address, if it has several.
func (r *resolver) memberAddr(c *lab.Cluster, h *lab.Host) netip.Addr {
	if len(h.NICs) == 0 {
		return h.IP
	}
	var subnet netip.Prefix
	if n := lab.FindSubnet(r.bySubnet, c.Address); n != nil {
		subnet = n.Subnet
	}
	return h.AddrIn(subnet)
}

// backendsOf returns the backends of c with a role. Bootstrap machines are used only while no other is up.
func (r *resolver) backendsOf(c *lab.Cluster, role string, port uint16) []lab.Backend {
	n := 0
	for _, h := range c.Hosts {
		if h.Role == role {
			n++
		}
	}
	out := make([]lab.Backend, 0, n)
	for _, h := range c.Hosts {
		if h.Role != role {
			continue
		}
		if a := r.memberAddr(c, h); a.IsValid() {
			out = append(out, lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(a, port), Backup: role == lab.RoleBootstrap})
		}
	}
	return out
}

// derive adds one balancer of c if it has backends. Where the appliance does not have the cluster's address, those of the API and of ingress
// listen nowhere: their checks say whether the cluster serves.
func (r *resolver) derive(c *lab.Cluster, service string, listen netip.Addr, port uint16, b lab.Balancer) {
	listens := !c.Health && !c.Names && r.ours(listen)
	if len(b.Backends) == 0 || !listens && service != lab.ServiceAPI && service != lab.ServiceIngress {
		return
	}
	b.Pos, b.Name, b.Cluster = c.Pos, c.BalancerOf(service), c
	if listens {
		b.Listen = lab.BindTo(netip.AddrPortFrom(listen, port))
	} else {
		b.Match = lab.Match{}
	}
	b.Timeouts = lab.Timeouts{Connect: connectTimeout, Idle: idleTimeout}.WithDefaults()
	b.Log, b.OnDown, b.Protocol = c.Log, lab.OnDownKeep, lab.BackendHTTP1
	b.Redirect = lab.RedirectOff
	b.Check.Interval, b.Check.FastInterval, b.Check.Timeout, b.Check.Rise, b.Check.Fall = checkInterval, checkFast, checkTimeout, checkRise, checkFall
	if b.Mode == "" {
		b.Mode = lab.ModeTCP
	}
	r.lab.Balancers = append(r.lab.Balancers, &b)
}

// deriveAPI checks /readyz, not the port: an API server accepts connections long before it serves and long after it
// stopped. Talos and hardened clusters run it with --anonymous-auth=false: it answers 401 to the check.
func (r *resolver) deriveAPI(c *lab.Cluster) {
	expect := lab.Statuses("200")
	if c.Kind != lab.OpenShift { // Talos' API server says no more without a login
		expect = "200,401"
	}
	r.derive(c, lab.ServiceAPI, c.API, portAPI, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api", "api-int"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/readyz", Expect: expect},
		Backends: append(r.backendsOf(c, lab.RoleControlPlane, portAPI), r.backendsOf(c, lab.RoleBootstrap, portAPI)...),
	})
}

// deriveTalos checks the port alone: apid talks only to clients with a certificate, and serves before the cluster does.
func (r *resolver) deriveTalos(c *lab.Cluster) {
	r.derive(c, "talos", c.API, portTalos, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api"), Check: lab.Check{Kind: lab.CheckTCP},
		Backends: r.backendsOf(c, lab.RoleControlPlane, portTalos),
	})
}

// deriveMachineConfig keeps workers from the bootstrap: its machine-config server has no configuration for them, and they are to wait until the
// control plane's has.
func (r *resolver) deriveMachineConfig(c *lab.Cluster) {
	bootstraps := r.backendsOf(c, lab.RoleBootstrap, portMachineConfig)
	for i := range bootstraps {
		bootstraps[i].NotFor = r.workers(c)
	}
	r.derive(c, "machine-config", c.API, portMachineConfig, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api-int", "api"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/healthz", Expect: "200"},
		Backends: append(r.backendsOf(c, lab.RoleControlPlane, portMachineConfig), bootstraps...),
	})
}

// workers returns the addresses of the workers of c, sorted.
func (r *resolver) workers(c *lab.Cluster) (addrs []netip.Addr) {
	for _, h := range c.Hosts {
		if a := r.memberAddr(c, h); h.Role == lab.RoleWorker && a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// deriveIngress sends to the workers, or to the control plane where there are none. The router answers for its health
// on a port of its own, so that a node without a router takes no traffic.
func (r *resolver) deriveIngress(c *lab.Cluster) {
	role := lab.RoleControlPlane
	if slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleWorker && r.memberAddr(c, h).IsValid() }) {
		role = lab.RoleWorker
	}
	check := lab.Check{Kind: lab.CheckHTTP, Path: "/healthz/ready", Port: portRouterHealth, Expect: "200"}
	r.derive(c, lab.ServiceIngress, c.Ingress, portHTTPS, lab.Balancer{
		Balance: lab.SourceHash, Match: sniMatch(c, "*.apps"), Check: check, Backends: r.backendsOf(c, role, portHTTPS),
	})
	plain := lab.Balancer{Balance: lab.SourceHash, Check: check, Backends: r.backendsOf(c, role, portHTTP)}
	if c.SNI {
		plain.Mode, plain.Match.Host = lab.ModeHTTP, []string{"*.apps." + c.Domain}
	}
	r.derive(c, "ingress-http", c.Ingress, portHTTP, plain)
}

// sniMatch returns the match of a balancer of c: empty, unless c shares its address.
func sniMatch(c *lab.Cluster, names ...string) lab.Match {
	if !c.SNI {
		return lab.Match{}
	}
	var m lab.Match
	for _, name := range names {
		m.SNI = append(m.SNI, name+"."+c.Domain)
	}
	return m
}
