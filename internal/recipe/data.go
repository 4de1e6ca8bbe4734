package recipe

import (
	"net/netip"
	"path"

	"bootlab/internal/lab"
)

// Data is what a template sees. Its fields are the contract of lab-file.md.
type Data struct {
	Host      HostData
	Cluster   *ClusterData // nil for a host of no cluster: naming it in a template is an error at check
	Network   NetworkData
	Profile   ProfileData
	Appliance ApplianceData
	FilesURL  string // where files are served, without a final slash
	ConfigURL string // this host's config document, token included
	DoneURL   string // to be called when the install is done, token included
}

// HostData is one host as templates see it.
type HostData struct {
	Name, FQDN, Role string
	MAC              lab.MAC // the NIC that boots
	IP, IP6          netip.Addr
	Serial           string
	Vars             map[string]any
}

// ClusterData is a cluster as templates see it.
type ClusterData struct {
	Name, Domain string
	Address      netip.Addr
}

// NetworkData is a network as templates see it.
type NetworkData struct {
	Name            string
	Subnet          netip.Prefix
	Address, Router netip.Addr
}

// ProfileData is a profile as templates see it.
type ProfileData struct {
	Name, InstallTo string
	OS              lab.OS
}

// ApplianceData is the appliance as templates see it.
type ApplianceData struct {
	Lab     string
	Domain  string
	Address netip.Addr // in the host's network
}

// Data returns what templates of h see in a boot from mac with that token.
func (r *Recipe) Data(l *lab.Lab, h *lab.Host, mac lab.MAC, token string) (Data, error) {
	d := Data{
		Host: HostData{
			Name: h.Name, FQDN: h.FQDN, Role: h.Role, MAC: mac, IP: h.IP, IP6: h.IP6, Serial: h.Serial, Vars: h.Vars,
		},
		Profile:   ProfileData{Name: h.Profile.Name, InstallTo: h.Profile.InstallTo, OS: h.Profile.OS},
		Appliance: ApplianceData{Lab: l.Name, Domain: l.Domain},
	}
	if c := h.Cluster; c != nil {
		d.Cluster = &ClusterData{Name: c.Name, Domain: c.Domain, Address: c.Address}
	}
	n := h.Network
	if n == nil {
		return d, nil
	}
	d.Network = NetworkData{Name: n.Name, Subnet: n.Subnet, Address: n.Address, Router: n.Router}
	d.Appliance.Address = n.Address
	d.FilesURL = n.FilesURL()
	d.DoneURL = n.BaseURL + "/" + lab.PathDone + mac.Hyphens() + "/" + token
	config, err := r.configName(d)
	d.ConfigURL = n.BaseURL + "/" + lab.PathConfig + mac.Hyphens() + "/" + token + "/" + config
	return d, err
}

// configName returns what the config URL ends in: the document's own name, since some installers go by its ending, or
// nothing for a seed, whose readers append the names they want.
func (r *Recipe) configName(d Data) (string, error) {
	file, err := execute(r.config, d)
	if err != nil || file == "" || r.system.seed {
		return "", err
	}
	return path.Base(file), nil
}
