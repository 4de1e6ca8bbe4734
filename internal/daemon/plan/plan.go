package plan

import (
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Plan is everything derived from a lab, or what of it concerns one host.
type Plan struct {
	Lab          string        `json:"lab"`
	Domain       string        `json:"domain"`
	Host         string        `json:"host,omitempty"` // empty: the whole lab
	Networks     []Network     `json:"networks"`
	Reservations []Reservation `json:"reservations"`
	Settings     []Setting     `json:"settings"`
	Records      []Record      `json:"records"`
	Balancers    []Balancer    `json:"balancers"`
	Machines     []Machine     `json:"machines"`
}

// A Network is one served network.
type Network struct {
	Name      string       `json:"name"`
	Subnet    netip.Prefix `json:"subnet"`
	Interface string       `json:"interface,omitempty"`
	Address   netip.Addr   `json:"address,omitzero"`
	Router    netip.Addr   `json:"router,omitzero"`
	DHCP      lab.DHCPMode `json:"dhcp"`
	Pools     []Pool       `json:"pools,omitempty"`
}

// A Pool is a range for machines without a reservation.
type Pool struct {
	Name    string   `json:"name"`
	Range   string   `json:"range"`
	For     []string `json:"for,omitempty"` // what a machine must be, all of it; empty: anyone
	MACs    []string `json:"mac,omitempty"` // the patterns of For's mac
	PerPort int      `json:"per_port,omitempty"`
	Profile string   `json:"profile,omitempty"`
}

// A Reservation is one NIC with its address.
type Reservation struct {
	MAC     lab.MAC    `json:"mac"`
	IP      netip.Addr `json:"ip,omitzero"`
	IPFrom  string     `json:"ip_from,omitempty"` // where it comes from if not from a reservation, for people
	Host    string     `json:"host"`
	FQDN    string     `json:"fqdn"`
	Network string     `json:"network"`
	Role    string     `json:"role,omitempty"`
	Profile string     `json:"profile,omitempty"`
}

// A Record is one DNS record.
type Record struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Data   string `json:"data"`
	Source string `json:"source"` // what it is derived from
}

// A Balancer is one frontend with its backends.
type Balancer struct {
	Name     string          `json:"name"`
	Listen   string          `json:"listen"` // empty: nowhere, names follow its backends
	Names    []string        `json:"names,omitempty"`
	Mode     lab.BalanceMode `json:"mode"`
	Balance  lab.Algorithm   `json:"balance"`
	Check    string          `json:"check"`
	Match    []string        `json:"match,omitempty"`
	Backends []Backend       `json:"backends"`
}

// A Backend is one backend of a balancer.
type Backend struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"` // without a port: that to which the client has connected
	Backup bool   `json:"backup,omitempty"`
	Weight int    `json:"weight,omitempty"` // if it is not 1
	Limit  int    `json:"limit,omitempty"`  // of connections
}

// A Machine is what one host boots and, where it is virtual, is. The token in its script is a placeholder. Config is empty
// in a plan whose secrets are hidden.
type Machine struct {
	Host       string     `json:"host"`
	Boot       []BootFile `json:"boot,omitempty"` // by the order of a boot: firmware first, then iPXE
	Script     string     `json:"script,omitempty"`
	Config     string     `json:"config,omitempty"`
	ConfigNote string     `json:"config_note,omitempty"` // why there is no config document here
	Refused    string     `json:"refused,omitempty"`     // why it would get nothing at all
	DomainXML  string     `json:"domain_xml,omitempty"`
	Placement  string     `json:"placement,omitempty"` // what vm create chooses from, and where DomainXML has it; empty: the lab file names the hypervisor
}

// A BootFile is what one kind of firmware fetches, by DHCP options.
type BootFile struct {
	Firmware string `json:"firmware"` // "BIOS", "UEFI x64", "iPXE" …
	File     string `json:"file"`     // a path by TFTP, or a URL
	Note     string `json:"note,omitempty"`
}

// Of returns the plan of host, or of the whole lab where host is empty.
func Of(s *snapshot.Snapshot, host string) (*Plan, error) {
	hosts := s.Lab.Hosts
	if host != "" {
		h := s.Lab.Find(host)
		switch {
		case h == nil && isZone(s, host):
			return nil, fmt.Errorf("no host %q in lab %s: it is a zone, which bootlab plan --zones %[1]s shows", host, s.Lab.Name)
		case h == nil:
			return nil, fmt.Errorf("no host %q in lab %s; hosts are %s", host, s.Lab.Name, some(s.Lab.Hosts))
		}
		host, hosts = h.Name, []*lab.Host{h}
	}
	p := &Plan{
		Lab: s.Lab.Name, Domain: s.Lab.Domain, Host: host,
		Networks: []Network{}, Reservations: []Reservation{}, Settings: []Setting{},
		Records: []Record{}, Balancers: []Balancer{}, Machines: []Machine{}, // lists for programs, if empty ones
	}
	p.networks(s.Lab, hosts)
	p.reservations(hosts)
	p.settings(s.Lab, hosts)
	p.records(s.Lab, hosts)
	p.updates(s)
	p.balancers(s.Lab, hosts)
	return p, p.machines(s, hosts)
}

// Hide takes the config documents out, which hold keys and passwords: who wants to see them asks for them by name.
func (p *Plan) Hide() {
	for i := range p.Machines {
		m := &p.Machines[i]
		if m.Config != "" {
			m.ConfigNote = fmt.Sprintf("%d bytes, hidden; bootlab plan --secrets shows them", len(m.Config))
			m.Config = ""
		}
	}
}

// some names a few hosts, for an error message.
func some(hosts []*lab.Host) string {
	const few = 8
	if len(hosts) == 0 {
		return "none"
	}
	var names []string
	for _, h := range hosts[:min(len(hosts), few)] {
		names = append(names, h.Name)
	}
	if len(hosts) > few {
		names = append(names, fmt.Sprintf("… %d in all", len(hosts)))
	}
	return strings.Join(names, ", ")
}

func (p *Plan) networks(l *lab.Lab, hosts []*lab.Host) {
	for _, n := range l.Networks {
		if p.Host != "" && !concerns(n, hosts[0]) {
			continue
		}
		out := Network{Name: n.Name, Subnet: n.Subnet, Interface: n.Interface, Address: n.Address, Router: n.Router, DHCP: n.DHCP}
		for _, pool := range n.Pools {
			out.Pools = append(out.Pools, planPool(pool))
		}
		p.Networks = append(p.Networks, out)
	}
}

func planPool(p *lab.Pool) Pool {
	out := Pool{Name: p.Name, Range: p.Range.String(), For: p.Criteria(), PerPort: p.PerPort, Profile: profileName(p.Profile)}
	for _, m := range p.MACs {
		out.MACs = append(out.MACs, m.String())
	}
	return out
}

func profileName(p *lab.Profile) string {
	if p == nil {
		return ""
	}
	return p.Name
}

func (p *Plan) reservations(hosts []*lab.Host) {
	for _, host := range hosts {
		for _, h := range host.Interfaces() {
			fqdn := h.FQDN
			if h == host && h.NICName != "" {
				fqdn = h.NICName
			}
			for _, m := range h.MACs {
				r := Reservation{MAC: m, IP: h.IP, IPFrom: h.AddressFrom(), Host: h.Name, FQDN: fqdn, Role: h.Role, Profile: profileName(h.Profile)}
				if h.Network != nil {
					r.Network = h.Network.Name
				}
				p.Reservations = append(p.Reservations, r)
			}
		}
	}
}

// records lists what the zones derive; of one host what is derived from it or leads to it.
func (p *Plan) records(l *lab.Lab, hosts []*lab.Host) {
	for _, z := range l.Zones {
		for _, r := range z.Records {
			if p.Host == "" || leadsTo(r, hosts[0]) {
				p.Records = append(p.Records, Record{Name: r.Name, Type: r.Type, Data: data(r), Source: r.Source})
			}
		}
		if p.Host == "" {
			p.static(l, z)
		}
	}
}

// leadsTo reports whether r is derived from h, leads to it, or is a name of its cluster.
func leadsTo(r lab.Record, h *lab.Host) bool {
	if r.Target != "" {
		name := strings.TrimSuffix(r.Target, ".")
		return name == h.FQDN || name == h.NICName || slices.Contains(h.Aliases, name) || slices.ContainsFunc(h.NICs, func(n lab.NIC) bool { return name == n.FQDN })
	}
	if h.Cluster != nil && r.Source == "cluster "+h.Cluster.Name {
		return true
	}
	return h.Has(r.Addr)
}

// static lists the lines that the lab file gives verbatim.
func (p *Plan) static(l *lab.Lab, z *lab.Zone) {
	for _, line := range z.Lines {
		p.Records = append(p.Records, Record{Name: z.Origin, Type: "line", Data: line.Text, Source: "dns.zones"})
	}
	if z.File != "" {
		p.Records = append(p.Records, Record{Name: z.Origin, Type: "file", Data: relative(l.Dir, z.File), Source: "dns.zones"})
	}
}

// updates lists what dynamic updates have put into zones. A plan of one host has none: its names cannot be updated.
func (p *Plan) updates(s *snapshot.Snapshot) {
	if p.Host != "" {
		return
	}
	for _, u := range s.Updated() {
		p.Records = append(p.Records, Record{Name: u.Name, Type: u.Type, Data: u.Data, Source: "dynamic update, key " + u.Key})
	}
}

// relative returns path as the lab file gives it, so that a plan reads the same wherever the lab's folder is.
func relative(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// data returns the record's data in zone file format.
func data(r lab.Record) string {
	switch {
	case r.Type == "SRV":
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, r.Target)
	case r.Addr.IsValid():
		return r.Addr.String()
	default:
		return r.Target
	}
}

func (p *Plan) balancers(l *lab.Lab, hosts []*lab.Host) {
	for _, b := range l.Balancers {
		if p.Host != "" && !concerns(b, hosts[0]) {
			continue
		}
		out := Balancer{
			Name: b.Name, Listen: b.Listen.String(), Names: b.Names, Mode: b.Mode, Balance: b.Balance, Check: check(b.Check),
			Match: slices.Concat(b.Match.SNI, b.Match.Host, b.Match.Path), Backends: []Backend{},
		}
		for _, m := range b.Backends {
			out.Backends = append(out.Backends, backend(m))
		}
		p.Balancers = append(p.Balancers, out)
	}
}

func backend(m lab.Backend) Backend {
	out := Backend{Name: m.Name, Addr: m.AddrText(), Backup: m.Backup, Limit: m.MaxConnections}
	if m.Weight > 1 {
		out.Weight = m.Weight
	}
	return out
}

// concerns reports whether an object of the lab is h, or decides what h gets.
func concerns(object any, h *lab.Host) bool {
	switch o := object.(type) {
	case *lab.Host:
		return o == h
	case *lab.Network:
		return slices.ContainsFunc(h.Interfaces(), func(as *lab.Host) bool { return as.Network == o })
	case *lab.Pool:
		return concerns(o.Network, h)
	case *lab.Profile:
		return o == h.Profile
	case *lab.Cluster:
		return o == h.Cluster
	case *lab.Hypervisor:
		return h.VM != nil && h.VM.MayRunOn(o)
	case *lab.Balancer:
		return slices.ContainsFunc(o.Backends, func(m lab.Backend) bool { return m.Host == h })
	}
	return false
}

func check(c lab.Check) string {
	s := string(c.Kind)
	if c.Kind == lab.CheckHTTP || c.Kind == lab.CheckHTTPS {
		s += " " + c.Path
	}
	if c.Port != 0 {
		s += fmt.Sprintf(" port %d", c.Port)
	}
	if c.Kind != lab.CheckNone {
		s += fmt.Sprintf(" every %s, rise %d, fall %d", lab.DurationText(c.Interval), c.Rise, c.Fall)
	}
	return s
}

func (p *Plan) machines(s *snapshot.Snapshot, hosts []*lab.Host) error {
	for _, h := range hosts {
		m, err := machine(s, h)
		if err != nil {
			return fmt.Errorf("plan %s: %w", h.Name, err)
		}
		if m.Script != "" || m.Refused != "" || m.Config != "" || m.ConfigNote != "" || m.DomainXML != "" || m.Boot != nil {
			p.Machines = append(p.Machines, m)
		}
	}
	return nil
}

func machine(s *snapshot.Snapshot, h *lab.Host) (Machine, error) {
	m := Machine{Host: h.Name, Boot: bootFiles(h)}
	preview, err := s.Boot.Preview(h)
	if err != nil { // all other hosts boot, and so they are shown
		m.Refused = err.Error()
	}
	m.Script = string(preview.Script)
	if preview.Reason != "" {
		m.ConfigNote = "not available yet: " + preview.Reason
	}
	if preview.Config != nil {
		m.Config = string(preview.Config.Body)
	}
	if h.VM != nil {
		if m.DomainXML, err = s.Virt.XML(h.Name); err != nil {
			return m, err
		}
		m.Placement = s.Virt.Choice(h.Name)
	}
	return m, nil
}

// bootFiles lists the file that DHCP names for each kind of firmware that h can have. A virtual machine has one.
func bootFiles(h *lab.Host) (files []BootFile) {
	for _, f := range dhcpd.BootFiles(h) {
		if h.VM == nil || f.Firmware == "iPXE" || strings.HasPrefix(f.Firmware, vmFirmware(h.VM)) {
			file := BootFile{Firmware: f.Firmware, File: f.File}
			if firmware.Added(path.Base(f.File)) {
				file.Note = "not built in: served from the folder of bootlab serve --firmware"
			}
			files = append(files, file)
		}
	}
	return files
}

func vmFirmware(vm *lab.VM) string {
	switch {
	case vm.Firmware == lab.FirmwareBIOS:
		return "BIOS"
	case vm.Arch == lab.ArchARM64:
		return "UEFI arm64"
	}
	return "UEFI x64"
}
