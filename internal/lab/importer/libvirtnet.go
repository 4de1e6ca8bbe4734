package importer

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// libvirt runs a dnsmasq for each network, so that the definition of a network becomes the statements that libvirt would write, and
// dnsmasq's reader does the rest. libvirtxml is not used: it drops elements that it does not know, and the lines of all.
func readLibvirtNet(d *draft, s *sources, names []string) error {
	q := newDnsmasq(d, s)
	for _, name := range names {
		data, err := s.read(name)
		if err != nil {
			return err
		}
		root, err := parseXML(name, data)
		if err != nil {
			return err
		}
		networks := root.children
		if len(networks) == 1 && networks[0].name != "network" {
			networks = networks[0].children // several in one element
		}
		for _, n := range networks {
			if n.name != "network" {
				return fmt.Errorf("%s:%d: <%s> is not a network of libvirt", name, n.at.line, clip(n.name))
			}
			q.libvirtNetwork(n)
		}
	}
	q.finish(nil)
	return nil
}

// An element is an XML element with its place.
type element struct {
	at       place
	name     string
	attrs    map[string]string
	text     string
	children []*element
}

func (e *element) all(name string) (found []*element) {
	for _, c := range e.children {
		if c.name == name {
			found = append(found, c)
		}
	}
	return found
}

// attr returns an attribute of the first child of that name, or "".
func (e *element) attr(child, name string) string {
	for _, c := range e.all(child) {
		return c.attrs[name]
	}
	return ""
}

// parseXML returns an element whose children are the roots of the file.
func parseXML(file string, data []byte) (*element, error) {
	dec := xml.NewDecoder(bytes.NewReader(data))
	root := &element{}
	open := []*element{root}
	for {
		line, _ := dec.InputPos()
		token, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF) && len(root.children) == 0:
			return nil, fmt.Errorf("%s: no element: want a definition of libvirt, such as virsh net-dumpxml prints", file)
		case errors.Is(err, io.EOF):
			return root, nil
		case err != nil:
			return nil, fmt.Errorf("%s:%d: not XML: %w", file, line, err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{at: place{file, line, "<" + t.Name.Local}, name: t.Name.Local, attrs: map[string]string{}}
			for _, a := range t.Attr {
				e.attrs[a.Name.Local] = a.Value
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					e.at.text += " " + a.Name.Local + "='" + a.Value + "'"
				}
			}
			e.at.text += ">"
			parent := open[len(open)-1]
			parent.children = append(parent.children, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			open[len(open)-1].text += strings.TrimSpace(string(t))
		}
	}
}

// leaveOutElement notes an element that has no equivalent. Some keep machines apart, or limit what they may do.
func (d *draft) leaveOutElement(e *element) {
	if listed("bandwidth vlan filterref readonly encryption iotune launchSecurity", e.name) || e.name == "port" && e.attrs["isolated"] == "yes" {
		d.weaker(e.at, noEquivalent)
		return
	}
	d.note(e.at, noEquivalent)
}

// libvirtNetwork adds the statements of one network.
func (q *dnsmasq) libvirtNetwork(n *element) {
	name, bridge := "", n.attr("bridge", "name")
	routed := len(n.all("forward")) > 0
	for _, c := range n.children {
		switch c.name {
		case "name":
			name = c.text
		case "uuid", "bridge", "mac", "ip", "dns", "metadata", "title", "description":
		case "forward":
			if mode := c.attrs["mode"]; mode == "nat" || mode == "route" || mode == "" {
				q.note(c.at, "addresses are not translated or routed here: keep libvirt's network for that, without <dhcp> and <dns>")
			}
		case "domain":
			q.add(c.at, "domain", c.attrs["name"])
			if c.attrs["localOnly"] == "yes" {
				q.add(c.at, "local", "/"+c.attrs["name"]+"/")
			}
		case "mtu":
			q.add(c.at, "dhcp-option", "tag:"+bridge+",26,"+c.attrs["size"])
		case "route":
			q.note(c.at, "a route of the hypervisor is not one of its machines: it is left out")
		case "options":
			for _, o := range c.all("option") {
				if key, value, _ := strings.Cut(o.attrs["value"], "="); dnsmasqKey(key) && key != "" {
					q.add(o.at, key, value)
				}
			}
		default:
			q.leaveOutElement(c)
		}
	}
	if bridge != "" {
		q.interfaces = append(q.interfaces, bridge)
	}
	for _, ip := range n.all("ip") {
		q.libvirtIP(ip, name, bridge, routed)
	}
	for _, dns := range n.all("dns") {
		q.libvirtDNS(dns)
	}
	if len(n.all("dns")) == 0 {
		q.wantsNames = true
	}
}

// libvirtIP adds the network of an address of the bridge, with its ranges and hosts.
func (q *dnsmasq) libvirtIP(ip *element, name, bridge string, routed bool) {
	subnet := libvirtSubnet(ip)
	a, bits := subnet.Addr(), subnet.Bits()
	switch {
	case !subnet.IsValid():
		q.note(ip.at, "%q is not an address: it is left out", ip.attrs["address"])
		return
	case !a.Is4():
		q.note(ip.at, "DHCPv6 and router advertisements are not sent: it is left out")
		return
	}
	n := q.addNetwork(ip.at, name, subnet)
	n.address = a
	if bridge != "" {
		n.set("interface", ip.at, bridge)
		q.note(ip.at, "remove <dhcp> from libvirt's network, and add <dns enable='no'/>, before bootlab serves %s", bridge)
	}
	dhcp := ip.all("dhcp")
	if len(dhcp) == 0 {
		n.set("dhcp", ip.at, "off")
		return
	}
	if !routed {
		q.add(ip.at, "dhcp-option", "tag:"+bridge+",3")
	}
	for _, tftp := range ip.all("tftp") {
		q.add(tftp.at, "tftp-root", tftp.attrs["root"])
	}
	for _, c := range dhcp[0].children {
		lease := ""
		for _, l := range c.all("lease") {
			lease = "," + l.attrs["expiry"] + map[string]string{"seconds": "s", "minutes": "m", "hours": "h", "": "m"}[l.attrs["unit"]]
			if l.attrs["expiry"] == "0" {
				lease = ",infinite"
			}
		}
		switch c.name {
		case "range":
			q.add(c.at, "dhcp-range", c.attrs["start"]+","+c.attrs["end"]+","+netmask(bits)+lease)
		case "host":
			var words []string
			for _, key := range []string{"mac", "ip", "name"} {
				if c.attrs[key] != "" {
					words = append(words, c.attrs[key])
				}
			}
			q.add(c.at, "dhcp-host", strings.Join(words, ",")+lease)
		case "bootp":
			q.add(c.at, "dhcp-boot", c.attrs["file"]+",,"+c.attrs["server"])
		default:
			q.note(c.at, "there is no equivalent: it is left out")
		}
	}
}

// libvirtSubnet returns the address of a bridge with the length of its network; the zero prefix if it is none.
func libvirtSubnet(ip *element) netip.Prefix {
	a, err := netip.ParseAddr(ip.attrs["address"])
	if err != nil {
		return netip.Prefix{}
	}
	bits := 24
	if mask, err := netip.ParseAddr(ip.attrs["netmask"]); err == nil && maskBits(mask) > 0 {
		bits = maskBits(mask)
	} else if _, err := fmt.Sscan(ip.attrs["prefix"], &bits); err != nil || bits < 1 || bits > a.BitLen() {
		bits = 24
	}
	return netip.PrefixFrom(a, bits)
}

// netmask writes the length of an IPv4 prefix as a mask.
func netmask(bits int) string {
	n := ^uint32(0) << (32 - bits)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

func (q *dnsmasq) libvirtDNS(dns *element) {
	if dns.attrs["enable"] == "no" {
		return
	}
	q.wantsNames = true
	for _, c := range dns.children {
		switch c.name {
		case "forwarder":
			server := c.attrs["addr"]
			if domain := c.attrs["domain"]; domain != "" {
				server = "/" + domain + "/" + server
			}
			q.add(c.at, "server", server)
		case "txt":
			q.addWords(c.at, "txt-record", c.attrs["name"], c.attrs["value"])
		case "host":
			for _, h := range c.all("hostname") {
				q.add(c.at, "hosts-line", c.attrs["ip"]+" "+h.text)
			}
		case "srv":
			name := "_" + c.attrs["service"] + "._" + c.attrs["protocol"]
			if domain := c.attrs["domain"]; domain != "" {
				name += "." + domain
			}
			q.addWords(c.at, "srv-host", name, c.attrs["target"], c.attrs["port"], c.attrs["priority"], c.attrs["weight"])
		default:
			q.note(c.at, "there is no equivalent: it is left out")
		}
	}
}
