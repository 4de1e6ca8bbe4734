package plan

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Setting is a value in use that no other section of the plan shows.
type Setting struct {
	Of    string `json:"of"` // such as "network baremetal" or "dns"
	Name  string `json:"name"`
	Value string `json:"value"`
}

// set adds a setting, unless value is empty or 0.
func (p *Plan) set(of, name string, value any) {
	s := fmt.Sprint(value)
	if d, ok := value.(time.Duration); ok {
		s = lab.DurationText(d)
	}
	if s != "" && s != "0" {
		p.Settings = append(p.Settings, Setting{of, name, s})
	}
}

func (p *Plan) settings(l *lab.Lab, hosts []*lab.Host) {
	for _, n := range l.Networks {
		if n.DHCP != lab.DHCPOff && p.shows(n, hosts) {
			p.networkSettings(n)
		}
	}
	for _, h := range hosts {
		p.hostSettings(h)
	}
	for _, pr := range l.Profiles {
		if p.Host == "" || hosts[0].Profile == pr {
			p.profileSettings(pr)
		}
	}
	for _, b := range l.Balancers {
		if b.Cluster == nil && (p.Host == "" || sendsTo(b, hosts[0])) {
			p.balancerSettings(b)
		}
	}
	for _, h := range l.Hypervisors {
		if p.Host == "" || hosts[0].VM != nil && hosts[0].VM.MayRunOn(h) {
			p.set("hypervisor "+h.Name, "uri", h.URI)
		}
	}
	if p.Host == "" {
		p.dnsSettings(&l.DNS)
	}
}

// networkSettings lists what DHCP sends to machines of n, and what its pools override.
func (p *Plan) networkSettings(n *lab.Network) {
	of := "network " + n.Name
	p.set(of, "lease", n.Lease)
	p.set(of, "dns", join(n.DNS))
	p.set(of, "search", strings.Join(n.Search, " "))
	p.set(of, "ntp", join(n.NTP))
	p.set(of, "mtu", n.MTU)
	p.dhcp(of, n.Routes, n.Options)
	if !n.Probe && len(n.Pools) > 0 {
		p.set(of, "probe", "off")
	}
	for _, pool := range n.Pools {
		of := "pool " + n.Name + "/" + pool.Name
		if pool.Lease != n.Lease {
			p.set(of, "lease", pool.Lease)
		}
		p.set(of, "per_port", pool.PerPort)
		p.dhcp(of, pool.Routes, pool.Options)
	}
}

// dhcp lists routes and further options. Lists that are there and empty say so: they undo the network's.
func (p *Plan) dhcp(of string, routes []lab.Route, options []lab.Option) {
	for _, r := range routes {
		p.set(of, "route", r.To.String()+" via "+r.Via.String())
	}
	if routes != nil && len(routes) == 0 {
		p.set(of, "route", "none")
	}
	for _, o := range options {
		forced := ""
		if o.Force {
			forced = ", forced"
		}
		p.set(of, "option "+strconv.Itoa(int(o.Code)), payload(o.Data)+forced)
	}
	if options != nil && len(options) == 0 {
		p.set(of, "options", "none")
	}
}

func (p *Plan) hostSettings(h *lab.Host) {
	of := "host " + h.Name
	p.dhcp(of, h.Routes, h.Options)
	if h.Lease > 0 {
		p.set(of, "lease", h.Lease)
	}
	if h.Ignored {
		p.set(of, "dhcp", lab.DHCPOff)
	}
	if b := h.BMC; b != nil {
		p.set(of, "redfish", b.Redfish)
		p.set(of, "ipmi", b.IPMI)
		p.set(of, "bmc user", b.Username)
	}
}

func (p *Plan) profileSettings(pr *lab.Profile) {
	of := "profile " + pr.Name
	p.set(of, "os", pr.OS)
	p.set(of, "install", pr.Install)
	p.set(of, "install_to", pr.InstallTo)
	p.set(of, "image", pr.Image)
	p.set(of, "config_reads", pr.ConfigReads)
}

// balancerSettings lists what a balancer of the lab file says; those of clusters are all alike.
func (p *Plan) balancerSettings(b *lab.Balancer) {
	of := "balancer " + b.Name
	p.set(of, "connect timeout", b.Timeouts.Connect)
	p.set(of, "idle timeout", b.Timeouts.Idle)
	if b.Check.Kind != lab.CheckNone {
		p.set(of, "check timeout", b.Check.Timeout)
	}
	if b.Check.Kind == lab.CheckHTTP || b.Check.Kind == lab.CheckHTTPS {
		p.set(of, "check expect", b.Check.Expect.String())
		p.set(of, "check host", b.Check.Host)
	}
	if b.Check.Kind == lab.CheckTLS || b.Check.Kind == lab.CheckHTTPS {
		p.set(of, "check sni", b.Check.SNI)
		p.set(of, "check ca_file", b.Check.CAFile)
	}
	if b.SendProxy > 0 {
		p.set(of, "send_proxy", fmt.Sprintf("v%d", b.SendProxy))
	}
	p.set(of, "accept_proxy", join(b.AcceptProxy))
	p.set(of, "max_connections", b.MaxConnections)
}

func (p *Plan) dnsSettings(d *lab.DNS) {
	p.set("dns", "forward", join(d.Forward))
	for _, z := range d.ForwardZones {
		p.set("dns", "forward "+z.Domain, join(z.Servers))
	}
	p.set("dns", "allow", join(d.Allow))
	p.set("dns", "transfer", join(d.Transfer))
	p.set("dns", "notify", join(d.Notify))
}

// payload writes the data of an option as the lab file could hold it: an address, text, or hex.
func payload(b []byte) string {
	if a, ok := netip.AddrFromSlice(b); ok && a.Is4() {
		return a.String()
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return "hex:" + hex.EncodeToString(b)
		}
	}
	return "text:" + string(b)
}

// join writes values with spaces between.
func join[T fmt.Stringer](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	return strings.Join(words, " ")
}
