package lab

import "net/netip"

// ClusterKind says which names and balancers a cluster brings along.
type ClusterKind string

// The kinds of cluster.
const (
	OpenShift  ClusterKind = "openshift"  // api, api-int, *.apps; 6443, 22623, 443, 80
	Kubernetes ClusterKind = "kubernetes" // api; 6443
	Talos      ClusterKind = "talos"      // api; 6443, 50000
	Plain      ClusterKind = "plain"      // a domain for its hosts, no more
)

// A Cluster groups hosts under one domain.
type Cluster struct {
	Pos     Pos
	Name    string
	Kind    ClusterKind
	Domain  string     // <Name>. and the domain as written
	Address netip.Addr // invalid: the cluster has no balancers and no api names
	API     netip.Addr // what api and api-int answer: Address, or the appliance's while a single node with that address has a bootstrap machine
	Ingress netip.Addr // *.apps; Address by default
	EtcdSRV bool
	Names   bool      // names only: another load balancer owns Address and Ingress
	SNI     bool      // shares Address with other clusters, distinguished by TLS server name and HTTP host
	Health  bool      // has no Address: its names have the addresses of its healthy members
	Hosts   []*Host   // sorted by name
	Log     AccessLog // of its balancers
	InPlace bool      // OpenShift on a single node that is its own bootstrap machine, by its document when the lab was loaded

	NoBootstrap *Problem // the warning that LacksBootstrap is about, which holds until the control plane is installed; nil: there is none

	Kubeconfig string // path of the file that leads to its API server; empty: none
}

// The services of a cluster that have a derived balancer, as in its name.
const (
	ServiceAPI     = "api"
	ServiceIngress = "ingress-https"
)

// BalancerOf returns the name of the derived balancer of a service.
func (c *Cluster) BalancerOf(service string) string { return c.Name + "-" + service }

// SingleNode reports whether the cluster's address is that of its only control-plane host, and a bootstrap machine serves first: api and
// api-int are then at API, an address of the appliance, until the bootstrap machine has left, and at Address afterwards.
func (c *Cluster) SingleNode() bool { return c.API.IsValid() && c.API != c.Address }

// LacksBootstrap reports whether the control plane of an OpenShift cluster would install itself from the network with a document, and the lab
// has no bootstrap machine: it then waits at port 22623 of api-int for its configuration. An installed cluster needs none; neither does a
// single node that boots in place, nor a cluster that owns its addresses itself.
func (c *Cluster) LacksBootstrap() bool {
	if c.Kind != OpenShift || c.Names || c.InPlace {
		return false
	}
	installs := false
	for _, h := range c.Hosts {
		switch p := h.Profile; h.Role {
		case RoleBootstrap:
			return false
		case RoleControlPlane:
			installs = installs || p != nil && p.Config != "" && p.Install != InstallNever
		}
	}
	return installs
}
