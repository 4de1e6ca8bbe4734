//go:build cgo && libvirt_dlopen

package virt

import (
	"fmt"

	"libvirt.org/go/libvirt"
)

// networks is Hypervisor.Networks.
func (c *libvirtConn) networks() ([]Network, error) {
	list, err := c.c.ListAllNetworks(0)
	if code(err) == libvirt.ERR_NO_SUPPORT {
		return nil, nil
	}
	if err != nil {
		return nil, plain(err)
	}
	var networks []Network
	var failed error
	for i := range list {
		n, err := describeNetwork(&list[i])
		_ = list[i].Free()
		switch {
		case code(err) == libvirt.ERR_NO_NETWORK: // undefined since the list was made
		case err != nil:
			failed = plain(err)
		default:
			networks = append(networks, n)
		}
	}
	return networks, failed
}

func describeNetwork(n *libvirt.Network) (Network, error) {
	active, err := n.IsActive()
	if err != nil {
		return Network{}, err
	}
	var d Network
	if active {
		if d.Running, err = n.GetXMLDesc(0); err != nil {
			return Network{}, err
		}
	}
	d.Autostart, _ = n.GetAutostart() // one that has no definition for its next start has none
	if d.XML, err = n.GetXMLDesc(libvirt.NETWORK_XML_INACTIVE); err != nil {
		if !active {
			return Network{}, err
		}
		d.XML = d.Running // without a definition for the next start
	}
	return d, nil
}

// defineNetwork is Hypervisor.DefineNetwork.
func (c *libvirtConn) defineNetwork(xml string) error {
	n, err := c.c.NetworkDefineXML(xml)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = n.Free() }()
	if err := n.SetAutostart(true); err != nil {
		return plain(err)
	}
	active, err := n.IsActive()
	if err != nil || active {
		return plain(err)
	}
	return plain(n.Create())
}

// deleteNetwork is Hypervisor.DeleteNetwork.
func (c *libvirtConn) deleteNetwork(uuid string) error {
	n, err := c.c.LookupNetworkByUUIDString(uuid)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = n.Free() }()
	active, err := n.IsActive()
	if err != nil {
		return plain(err)
	}
	if active {
		ports, err := n.ListAllPorts(0) // libvirt itself would take the network away from running machines
		if err != nil && code(err) != libvirt.ERR_NO_SUPPORT {
			return plain(err)
		}
		for i := range ports {
			_ = ports[i].Free()
		}
		if len(ports) > 0 {
			return fmt.Errorf("running machines have %d NICs in it: stop them first", len(ports))
		}
		if err := n.Destroy(); err != nil {
			return plain(err)
		}
	}
	return plain(n.Undefine())
}
