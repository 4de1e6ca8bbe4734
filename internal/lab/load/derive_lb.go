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
)

// deriveBalancers adds the balancers that clusters bring along.
func (r *resolver) deriveBalancers() {
	for _, c := range r.lab.Clusters {
		if c.Kind == lab.Plain {
			continue
		}
		r.deriveAPI(c)
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

// members returns the backends of c with a role; backup marks them as used only while no other is up.
func members(c *lab.Cluster, role string, port uint16, backup bool) []lab.Backend {
	n := 0
	for _, h := range c.Hosts {
		if h.Role == role && h.IP.IsValid() {
			n++
		}
	}
	out := make([]lab.Backend, 0, n)
	for _, h := range c.Hosts {
		if h.Role == role && h.IP.IsValid() {
			out = append(out, lab.Backend{Name: h.Name, Host: h, Addr: netip.AddrPortFrom(h.IP, port), Backup: backup})
		}
	}
	return out
}

// derive adds one balancer of c if it has members.
func (r *resolver) derive(c *lab.Cluster, service string, listen netip.Addr, port uint16, b lab.Balancer) {
	if len(b.Backends) == 0 || !r.ours(listen) {
		return
	}
	b.Pos, b.Name, b.Cluster, b.Listen = c.Pos, c.Name+"-"+service, c, netip.AddrPortFrom(listen, port)
	b.Timeouts = lab.Timeouts{Connect: connectTimeout, Idle: idleTimeout}
	b.Check.Interval, b.Check.Timeout, b.Check.Rise, b.Check.Fall = checkInterval, checkTimeout, checkRise, checkFall
	if b.Mode == "" {
		b.Mode = lab.ModeTCP
	}
	r.lab.Balancers = append(r.lab.Balancers, &b)
}

// deriveAPI checks /readyz, not the port: an API server accepts connections long before it serves and long after it
// stopped.
func (r *resolver) deriveAPI(c *lab.Cluster) {
	r.derive(c, "api", c.Address, portAPI, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api", "api-int"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/readyz", Expect: 200},
		Backends: append(members(c, lab.RoleControlPlane, portAPI, false), members(c, lab.RoleBootstrap, portAPI, true)...),
	})
}

func (r *resolver) deriveMachineConfig(c *lab.Cluster) {
	r.derive(c, "machine-config", c.Address, portMachineConfig, lab.Balancer{
		Balance: lab.RoundRobin, Match: sniMatch(c, "api-int", "api"),
		Check:    lab.Check{Kind: lab.CheckHTTPS, Path: "/healthz", Expect: 200},
		Backends: append(members(c, lab.RoleControlPlane, portMachineConfig, false), members(c, lab.RoleBootstrap, portMachineConfig, true)...),
	})
}

// deriveIngress sends to the workers, or to the control plane where there are none. The router answers for its health
// on a port of its own, so that a node without a router takes no traffic.
func (r *resolver) deriveIngress(c *lab.Cluster) {
	role := lab.RoleControlPlane
	if slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleWorker && h.IP.IsValid() }) {
		role = lab.RoleWorker
	}
	check := lab.Check{Kind: lab.CheckHTTP, Path: "/healthz/ready", Port: portRouterHealth, Expect: 200}
	r.derive(c, "ingress-https", c.Ingress, portHTTPS, lab.Balancer{
		Balance: lab.SourceHash, Match: sniMatch(c, "*.apps"), Check: check, Backends: members(c, role, portHTTPS, false),
	})
	plain := lab.Balancer{Balance: lab.SourceHash, Check: check, Backends: members(c, role, portHTTP, false)}
	if c.SNI {
		plain.Mode, plain.Match.Host = lab.ModeHTTP, []string{"*.apps." + c.Domain}
	}
	r.derive(c, "ingress-http", c.Ingress, portHTTP, plain)
}

// sniMatch returns the match of a balancer of c: of nothing in particular, unless c shares its address.
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
