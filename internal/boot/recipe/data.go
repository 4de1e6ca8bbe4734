package recipe

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// Data is what a template sees. Its fields are the contract of lab-file.md.
type Data struct {
	Host      HostData
	Cluster   *ClusterData // nil for a host of no cluster: naming it in a template is an error at check
	Network   NetworkData
	Profile   ProfileData
	Appliance ApplianceData
	FilesURL  string // where files are served, without a final slash
	TreeURL   URL    // the profile's tree, without a final slash
	ConfigURL string // this host's config document, token included
	DoneURL   string // to be called when the install is done, token included
	// DocumentsURL is the folder of this host's documents, token included, without a final slash: the config document, the
	// profile's other documents under their base names, and what the recipe adds.
	DocumentsURL string

	chain   lab.Chain // not for templates, as are the next two
	mirrors []*lab.Mirror
	network *lab.Network
}

// HostData is one host as templates see it.
type HostData struct {
	Name, FQDN string
	Role       Role
	MAC        lab.MAC // the NIC that boots
	IP, IP6    Address
	Serial     Serial
	Vars       map[string]any
}

// ClusterData is a cluster as templates see it.
type ClusterData struct {
	Name, Domain string
	Address      Address
}

// NetworkData is a network as templates see it.
type NetworkData struct {
	Name    string
	Subnet  netip.Prefix
	Address netip.Addr // not known where its interface is not up, as in a check on another machine
	Router  Address
	DNS     []netip.Addr // name servers, as DHCP gives them
}

// ProfileData is a profile as templates see it.
type ProfileData struct {
	Name      string
	InstallTo InstallTo
	Tree      string
	OS        lab.OS
}

// ApplianceData is the appliance as templates see it.
type ApplianceData struct {
	Lab     string
	Domain  string
	Address netip.Addr // in the host's network, as in NetworkData
}

// An Address is an address that the lab file may leave out. A template may ask whether it IsValid; to write one that is
// not set is an error, as with every missing value.
type Address struct {
	netip.Addr
	name string // in templates
}

// String returns the address, or a mark that makes the rendering fail.
func (a Address) String() string {
	if !a.IsValid() {
		return unset + a.name + unset
	}
	return a.Addr.String()
}

// A URL may be missing, as an Address may.
type URL string

// String returns the URL, or a mark that makes the rendering fail.
func (u URL) String() string { return orUnset(string(u), ".TreeURL") }

// A Role is a host's role, which may be missing.
type Role string

// String returns the role, or a mark that makes the rendering fail.
func (r Role) String() string { return orUnset(string(r), ".Host.Role") }

// A Serial is the serial number of a virtual machine; other hosts have none.
type Serial string

// String returns the serial number, or a mark that makes the rendering fail.
func (s Serial) String() string { return orUnset(string(s), ".Host.Serial") }

// An InstallTo is the disk of a profile, which may be missing.
type InstallTo string

// String returns the disk, or a mark that makes the rendering fail.
func (d InstallTo) String() string { return orUnset(string(d), ".Profile.InstallTo") }

// orUnset returns s, or a mark that makes the rendering fail where it is empty.
func orUnset(s, name string) string {
	if s == "" {
		return unset + name + unset
	}
	return s
}

// text returns the address, or nothing where it is not set.
func (a Address) text() string {
	if !a.IsValid() {
		return ""
	}
	return a.Addr.String()
}

// unset encloses the name of a value that was written although it is not set. No document holds this byte.
const unset = "\x00"

// checkUnset returns an error that names the first value that was written although it is not set.
func checkUnset(rendered string) error {
	if _, rest, found := strings.Cut(rendered, unset); found {
		name, _, _ := strings.Cut(rest, unset)
		switch name {
		case ".TreeURL":
			return fmt.Errorf("{{%s}} is not set: want tree in the profile", name)
		case ".Host.Role":
			return fmt.Errorf("{{%s}} is not set: want a role of the host, or ask {{if %s}} before", name, name)
		case ".Host.Serial":
			return fmt.Errorf("{{%s}} is not set, as the host is no virtual machine: want ${serial} in a script, or ask {{if %s}} before", name, name)
		case ".Profile.InstallTo":
			return fmt.Errorf("{{%s}} is not set: want install_to in the profile, or ask {{if %s}} before", name, name)
		}
		return fmt.Errorf("{{%s}} is not set: set it in the lab file, or ask {{if %s.IsValid}} before", name, name)
	}
	return nil
}

// Data returns what the templates of h see in a boot from the NIC mac with that token.
func (r *Recipe) Data(l *lab.Lab, h *lab.Host, mac lab.MAC, token string) (Data, error) {
	d := Data{
		Host: HostData{
			Name: h.Name, FQDN: h.FQDN, Role: Role(h.WrittenRole()), MAC: mac,
			IP: Address{h.IP, ".Host.IP"}, IP6: Address{h.IP6, ".Host.IP6"}, Serial: Serial(h.Serial), Vars: h.Vars,
		},
		Profile:   ProfileData{Name: h.Profile.Name, InstallTo: InstallTo(h.Profile.InstallTo), Tree: h.Profile.Tree, OS: h.Profile.OS},
		Appliance: ApplianceData{Lab: l.Name, Domain: l.Domain},
		chain:     h.Chain,
		mirrors:   l.Mirrors, network: h.Network,
	}
	if c := h.Cluster; c != nil {
		d.Cluster = &ClusterData{Name: c.Name, Domain: c.Domain, Address: Address{c.Address, ".Cluster.Address"}}
	}
	d.Network.Router.name = ".Network.Router"
	n := h.Network
	if n == nil {
		return d, nil
	}
	d.Network.Name, d.Network.Subnet = n.Name, n.Subnet
	d.Network.Address, d.Network.Router.Addr, d.Appliance.Address = n.Address, n.Router, n.Address
	d.Network.DNS = n.DNS
	d.FilesURL = n.FilesURL()
	if h.Profile.Tree != "" {
		d.TreeURL = URL(d.FilesURL + "/" + h.Profile.Tree)
	}
	d.DoneURL = n.BaseURL + "/" + lab.PathDone + mac.Hyphens() + "/" + token
	d.DocumentsURL = n.BaseURL + "/" + lab.PathConfig + mac.Hyphens() + "/" + token
	config, err := r.ConfigName(d)
	d.ConfigURL = d.DocumentsURL + "/" + config
	return d, err
}

// ConfigName returns the last element of the config URL: the document's name, since some installers go by its ending, or nothing for a
// seed, whose readers append names.
func (r *Recipe) ConfigName(d Data) (string, error) {
	file, err := r.config.render(&d)
	if err != nil || file == "" || r.system.seed {
		return "", err
	}
	return path.Base(file), nil
}

// A MirrorData is a mirror of the lab as a host reaches it.
type MirrorData struct {
	URL  string // "http://192.168.16.1:8080/mirror/debian", no final slash
	Host string // "192.168.16.1:8080", for installers that take host and path separately
	Path string // "/mirror/debian"
}

// Mirror returns how the host reaches that mirror: {{(.Mirror "debian").Host}}. One that the lab does not have is an error.
func (d Data) Mirror(name string) (MirrorData, error) {
	if !slices.ContainsFunc(d.mirrors, func(m *lab.Mirror) bool { return m.Name == name }) {
		return MirrorData{}, fmt.Errorf("mirror %q is not in the lab: want one of its mirrors (%s)", name, mirrorNames(d.mirrors))
	}
	m := MirrorData{Path: "/" + lab.PathMirror + name}
	if d.network != nil {
		m.URL, m.Host = d.network.MirrorURL(name), strings.TrimPrefix(d.network.BaseURL, "http://")
	}
	return m, nil
}

// MirrorURL returns where the host reaches that mirror, without a final slash: {{.MirrorURL "debian"}}.
func (d Data) MirrorURL(name string) (string, error) {
	m, err := d.Mirror(name)
	return m.URL, err
}

func mirrorNames(ms []*lab.Mirror) string {
	if len(ms) == 0 {
		return "it has none"
	}
	names := make([]string, len(ms))
	for i, m := range ms {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}
