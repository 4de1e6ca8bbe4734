package virt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Network is a libvirt network of a hypervisor.
type Network struct {
	XML       string // its definition at the next start
	Running   string `json:",omitempty"` // the definition that it runs with; empty: it is not active
	Autostart bool   `json:",omitempty"`
	// Ports are the UUIDs of the ports that NICs of running domains have in it.
	Ports []string `json:",omitempty"`
}

// A libvirtNetwork is a libvirt network that the lab file lets bootlab create on a hypervisor.
type libvirtNetwork struct {
	lab string
	hv  *lab.Hypervisor
	lab.Attachment
}

// networksOn returns the networks that bootlab creates on a hypervisor.
func (t *Table) networksOn(hv *lab.Hypervisor) (all []*libvirtNetwork) {
	for _, a := range hv.Bridges {
		if a.Create != nil {
			all = append(all, &libvirtNetwork{t.lab, hv, a})
		}
	}
	return all
}

// networks returns the networks of a machine that bootlab creates.
func (m *machine) networks() (all []*libvirtNetwork) {
	for i, a := range m.attach {
		if a.Create != nil && !slices.ContainsFunc(m.attach[:i], func(b lab.Attachment) bool { return b.LibvirtNetwork == a.LibvirtNetwork }) {
			all = append(all, &libvirtNetwork{m.table.lab, m.vm.Hypervisor, a})
		}
	}
	return all
}

// networkURI is the XML namespace of the metadata of networks.
const networkURI = "urn:bootlab:network:1"

// networkMark is the element that bootlab adds to a network's metadata.
type networkMark struct {
	Lab     string `xml:"lab,attr"`
	Network string `xml:"network,attr"` // of the lab
	Spec    string `xml:"spec,attr"`    // digest of the definition without its metadata
}

// networkMarkOf reads the mark of a network; the zero value: it has none, so bootlab did not create it.
func networkMarkOf(text string) networkMark {
	var n struct {
		Mark networkMark `xml:"metadata>network"`
	}
	if err := xml.Unmarshal([]byte(text), &n); err != nil {
		return networkMark{}
	}
	return n.Mark
}

// A foundNetwork is a network that a hypervisor has.
type foundNetwork struct {
	Network
	definition libvirtxml.Network // at its next start
	mark       networkMark
}

// networksOf returns the networks of a hypervisor, by name.
func networksOf(ctx context.Context, hv Hypervisor) (map[string]*foundNetwork, error) {
	networks, err := hv.Networks(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*foundNetwork, len(networks))
	for _, n := range networks {
		f := &foundNetwork{Network: n, mark: networkMarkOf(n.XML)}
		if err := f.definition.Unmarshal(n.XML); err == nil {
			found[f.definition.Name] = f
		}
	}
	return found, nil
}

// isOf reports whether the network was created from a lab. A copy of one, as virsh makes it, has the mark and a UUID of its own.
func (f *foundNetwork) isOf(labName string) bool {
	return f.mark.Lab == labName && f.definition.UUID == networkUUID(labName, f.definition.Name)
}

// isActive reports whether the network runs.
func (f *foundNetwork) isActive() bool { return f.Running != "" }

// state is that of machines, for plans.
func (f *foundNetwork) state() State {
	if f.isActive() {
		return StateRunning
	}
	return StateOff
}

// networkUUID returns the UUID of a network that bootlab creates, which depends on lab and name only.
func networkUUID(labName, network string) string {
	return uuidOf(labName + "\x00network\x00" + network)
}

// definition returns the network without its mark. libvirt starts its dnsmasq only for DNS and for DHCP, which
// needs a range of addresses in the definition.
func (n *libvirtNetwork) definition() *libvirtxml.Network {
	uuid := networkUUID(n.lab, n.LibvirtNetwork)
	d := &libvirtxml.Network{Name: n.LibvirtNetwork, UUID: uuid}
	if n.Create.Forward != lab.ForwardIsolated {
		d.Forward = &libvirtxml.NetworkForward{Mode: string(n.Create.Forward)}
	}
	if n.Create.Forward == lab.ForwardBridge {
		d.Bridge = &libvirtxml.NetworkBridge{Name: n.Create.Bridge}
		return d
	}
	// Without the spanning tree protocol a machine's port forwards at once, which network boots need.
	d.Bridge = &libvirtxml.NetworkBridge{Name: n.Create.Bridge, STP: "off", Delay: "0"}
	d.MAC = &libvirtxml.NetworkMAC{Address: "52:54:00:" + uuid[:2] + ":" + uuid[2:4] + ":" + uuid[4:6]}
	d.DNS = &libvirtxml.NetworkDNS{Enable: "no"}
	if a := n.Create.Address; a.IsValid() {
		d.IPs = []libvirtxml.NetworkIP{{Address: a.Addr().String(), Prefix: uint(a.Bits())}}
	}
	if n.Network.MTU > 0 {
		d.MTU = &libvirtxml.NetworkMTU{Size: uint(n.Network.MTU)}
	}
	return d
}

// xml returns the definition with its mark, and the mark.
func (n *libvirtNetwork) xml() (string, networkMark, error) {
	d := n.definition()
	plain, err := d.Marshal()
	if err != nil {
		return "", networkMark{}, err
	}
	mark := networkMark{Lab: n.lab, Network: n.Network.Name, Spec: digest(plain)}
	d.Metadata = &libvirtxml.NetworkMetadata{XML: markXML("network", networkURI, mark)}
	text, err := d.Marshal()
	return text, mark, err
}

// find returns the network as it is on its hypervisor; nil: there is none. It is an error if bootlab did not create it.
func (n *libvirtNetwork) find(networks map[string]*foundNetwork) (*foundNetwork, error) {
	have := networks[n.LibvirtNetwork]
	if have != nil && !have.isOf(n.lab) {
		return nil, fmt.Errorf("libvirt network %s exists on hypervisor %s and was not created from lab %q: take create out of the lab file (%s) to use it as it is, "+
			"choose another name, or delete it (virsh net-destroy %[1]s; virsh net-undefine %[1]s)", n.LibvirtNetwork, n.hv.Name, n.lab, n.Create.Pos)
	}
	return have, nil
}

// compare compares the network with what its hypervisor has.
func (n *libvirtNetwork) compare(networks map[string]*foundNetwork) Comparison {
	c := Comparison{Network: n.LibvirtNetwork, Hypervisor: n.hv.Name, State: StateAbsent, Condition: ConditionMissing}
	have, err := n.find(networks)
	if err == nil && have == nil {
		return c
	}
	var mark networkMark
	if err == nil {
		_, mark, err = n.xml()
	}
	if err != nil {
		c.State, c.Condition, c.Details = StateUnknown, ConditionUnknown, []string{err.Error()}
		return c
	}
	c.State, c.Condition, c.Details = have.state(), ConditionOK, n.differences(have)
	switch {
	case have.mark != mark:
		c.Condition = ConditionChanged
	case len(c.Details) > 0:
		c.Condition = ConditionDrifted
	case have.isActive() && networkMarkOf(have.Running) != mark:
		c.Condition = ConditionRestart
		c.Details = []string{fmt.Sprintf("it runs with an older definition: stop the machines on it, then bootlab vm network delete %s %s and bootlab vm apply", n.hv.Name, n.LibvirtNetwork)}
	}
	return c
}

// differences returns in which of what bootlab sets a definition differs from the one of the lab file.
func (n *libvirtNetwork) differences(have *foundNetwork) (lines []string) {
	compare := func(what, is, should string) {
		if is != should {
			lines = append(lines, difference(what, is, should))
		}
	}
	want, d := n.definition(), &have.definition
	compare("forward", forwardOf(d), forwardOf(want))
	if want.Bridge.Name != "" {
		compare("bridge", bridgeOf(d), bridgeOf(want))
	}
	compare("address", addressesOf(d), addressesOf(want))
	compare("DHCP of libvirt", hasDHCP(d), hasDHCP(want))
	compare("DNS of libvirt", hasDNS(d), hasDNS(want))
	compare("MTU", mtuOf(d), mtuOf(want))
	if !have.isActive() {
		lines = append(lines, "it is not active")
	}
	if !have.Autostart {
		lines = append(lines, "it does not start with its hypervisor")
	}
	return lines
}

func forwardOf(d *libvirtxml.Network) string {
	if d.Forward == nil {
		return string(lab.ForwardIsolated)
	}
	return d.Forward.Mode
}

func bridgeOf(d *libvirtxml.Network) string {
	if d.Bridge == nil {
		return ""
	}
	return d.Bridge.Name
}

func addressesOf(d *libvirtxml.Network) string {
	var all []string
	for _, ip := range d.IPs {
		mask := ip.Netmask
		if mask == "" {
			mask = fmt.Sprint(ip.Prefix)
		}
		all = append(all, ip.Address+"/"+mask)
	}
	return strings.Join(all, " ")
}

func hasDHCP(d *libvirtxml.Network) string {
	if slices.ContainsFunc(d.IPs, func(ip libvirtxml.NetworkIP) bool { return ip.DHCP != nil }) {
		return "on"
	}
	return "off"
}

// hasDNS reports whether libvirt answers DNS, which is its default in a network with a bridge of its own.
func hasDNS(d *libvirtxml.Network) string {
	if forwardOf(d) == string(lab.ForwardBridge) || d.DNS != nil && d.DNS.Enable == "no" {
		return "off"
	}
	return "on"
}

func mtuOf(d *libvirtxml.Network) string {
	if d.MTU == nil {
		return ""
	}
	return fmt.Sprint(d.MTU.Size)
}

// ensure creates the network if it is missing, starts it if it is not active, and makes its definition as in the lab file unless it is
// active: what machines use stays as it is. It reports whether it changed anything.
func (n *libvirtNetwork) ensure(ctx context.Context, hv Hypervisor) (changed bool, err error) {
	networks, err := networksOf(ctx, hv)
	if err != nil {
		return false, err
	}
	have, err := n.find(networks)
	if err != nil || have != nil && have.isActive() {
		return false, err
	}
	return true, n.define(ctx, hv)
}

// define makes the definition as in the lab file. An active network has it from its next start on.
func (n *libvirtNetwork) define(ctx context.Context, hv Hypervisor) error {
	text, _, err := n.xml()
	if err != nil {
		return err
	}
	if err := hv.DefineNetwork(ctx, text); err != nil {
		return fmt.Errorf("create libvirt network %s: %w", n.LibvirtNetwork, err)
	}
	return nil
}

// ensureNetworks creates the networks that a machine needs.
func (s *Server) ensureNetworks(ctx context.Context, hv Hypervisor, m *machine) error {
	for _, n := range m.networks() {
		changed, err := n.ensure(ctx, hv)
		if err != nil {
			return err
		}
		if changed {
			s.deps.Events.Record(event.Event{Kind: event.VMNetworkDefined, Detail: n.LibvirtNetwork + " on " + n.hv.Name})
		}
	}
	return nil
}

// planNetworks compares the networks that bootlab creates on a hypervisor, those of the machines of hosts or, if that is nil, all and
// those that are no longer in the lab file.
func planNetworks(networks map[string]*foundNetwork, t *Table, hv *lab.Hypervisor, hosts []string) (all []Comparison) {
	wanted := t.networksOn(hv)
	if hosts != nil {
		wanted = nil
		for _, host := range hosts {
			if m := t.byHost[host]; m.vm.Hypervisor == hv {
				wanted = append(wanted, m.networks()...)
			}
		}
		slices.SortFunc(wanted, func(a, b *libvirtNetwork) int { return strings.Compare(a.LibvirtNetwork, b.LibvirtNetwork) })
		wanted = slices.CompactFunc(wanted, func(a, b *libvirtNetwork) bool { return a.LibvirtNetwork == b.LibvirtNetwork })
	}
	for _, n := range wanted {
		all = append(all, n.compare(networks))
	}
	if hosts == nil {
		all = append(all, orphanedNetworks(t, hv, networks)...)
	}
	return all
}

// isDisconnected reports whether a running domain has a NIC whose port is gone: its libvirt network was stopped since, and may run again.
func isDisconnected(d Domain, networks map[string]*foundNetwork) bool {
	return slices.ContainsFunc(d.Ports, func(port string) bool {
		for _, n := range networks {
			if slices.Contains(n.Ports, port) {
				return false
			}
		}
		return true
	})
}

// orphanedNetworks returns the networks that were created from the lab and are not in the lab file.
func orphanedNetworks(t *Table, hv *lab.Hypervisor, networks map[string]*foundNetwork) (all []Comparison) {
	for name, have := range networks {
		if !have.isOf(t.lab) || slices.ContainsFunc(hv.Bridges, func(a lab.Attachment) bool { return a.Create != nil && a.LibvirtNetwork == name }) {
			continue
		}
		all = append(all, Comparison{Network: name, Hypervisor: hv.Name, State: have.state(), Condition: ConditionOrphaned, Details: []string{
			fmt.Sprintf("the lab file does not create it any more; bootlab vm network delete %s %s deletes it", hv.Name, name)}})
	}
	return all
}

// onHypervisor calls fn with the hypervisor of that name, with a timeout.
func (s *Server) onHypervisor(ctx context.Context, name string, fn func(context.Context, *Table, *lab.Hypervisor, Hypervisor) error) error {
	t := s.table()
	i := slices.IndexFunc(t.hypervisors, func(hv *lab.Hypervisor) bool { return hv.Name == name })
	if i < 0 {
		return fmt.Errorf("hypervisor %q is not in the lab", name)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.contained(t.hypervisors[i], func(h Hypervisor) error { return fn(ctx, t, t.hypervisors[i], h) })
}

// ApplyNetwork makes a libvirt network as it is in the lab file: it creates and starts it if it is missing, and redefines it if it
// differs. One that is active has the new definition from its next start on.
func (s *Server) ApplyNetwork(ctx context.Context, hypervisor, name string) error {
	err := s.onHypervisor(ctx, hypervisor, func(ctx context.Context, t *Table, hv *lab.Hypervisor, h Hypervisor) error {
		all := t.networksOn(hv)
		i := slices.IndexFunc(all, func(n *libvirtNetwork) bool { return n.LibvirtNetwork == name })
		if i < 0 {
			return errors.New("the lab file does not let bootlab create it: set create in the hypervisor's bridges")
		}
		networks, err := networksOf(ctx, h)
		if err != nil {
			return err
		}
		if _, err := all[i].find(networks); err != nil {
			return err
		}
		return all[i].define(ctx, h)
	})
	return s.networkDone(event.VMNetworkDefined, "apply", hypervisor, name, err)
}

// DeleteNetwork stops a libvirt network that was created from this lab, and deletes its definition, whether it is in the lab file or
// not. It is an error if running machines use it.
func (s *Server) DeleteNetwork(ctx context.Context, hypervisor, name string) error {
	err := s.onHypervisor(ctx, hypervisor, func(ctx context.Context, t *Table, _ *lab.Hypervisor, h Hypervisor) error {
		networks, err := networksOf(ctx, h)
		if err != nil {
			return err
		}
		have := networks[name]
		switch {
		case have == nil:
			return errors.New("there is no such libvirt network")
		case !have.isOf(t.lab):
			return fmt.Errorf("it was not created from lab %q: virsh net-destroy and virsh net-undefine delete it", t.lab)
		}
		return h.DeleteNetwork(ctx, have.definition.UUID)
	})
	return s.networkDone(event.VMNetworkDeleted, "delete", hypervisor, name, err)
}

// PlanNetwork compares one libvirt network with the lab file; StateAbsent and no condition: neither has it.
func (s *Server) PlanNetwork(ctx context.Context, hypervisor, name string) (c Comparison, err error) {
	c = Comparison{Network: name, Hypervisor: hypervisor, State: StateAbsent}
	return c, s.onHypervisor(ctx, hypervisor, func(ctx context.Context, t *Table, hv *lab.Hypervisor, h Hypervisor) error {
		networks, err := networksOf(ctx, h)
		if err != nil {
			return err
		}
		for _, on := range planNetworks(networks, t, hv, nil) {
			if on.Network == name {
				c = on
			}
		}
		return nil
	})
}

// networkDone records an operation on a network, and returns its error in words.
func (s *Server) networkDone(kind event.Kind, what, hypervisor, name string, err error) error {
	e := event.Event{Kind: kind, Detail: name + " on " + hypervisor}
	if err != nil {
		err = fmt.Errorf("%s libvirt network %s on hypervisor %s: %w", what, name, hypervisor, err)
		e = event.Event{Kind: event.VMFailed, Detail: what + " libvirt network " + e.Detail, Err: err.Error()}
	}
	s.deps.Events.Record(e)
	return err
}
