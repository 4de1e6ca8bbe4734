//go:build cgo && libvirt_dlopen

package virt

import (
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
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
	return describeAll(list, describeNetwork, (*libvirt.Network).Free, libvirt.ERR_NO_NETWORK)
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
		if d.Ports, err = portsOf(n); err != nil {
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

// portsOf returns the UUIDs of the ports of a network: of the NICs that have a link in it.
func portsOf(n *libvirt.Network) (uuids []string, err error) {
	ports, err := n.ListAllPorts(0)
	if code(err) == libvirt.ERR_NO_SUPPORT {
		return nil, nil
	}
	for i := range ports {
		if uuid, err := ports[i].GetUUIDString(); err == nil {
			uuids = append(uuids, uuid)
		}
		_ = ports[i].Free()
	}
	return uuids, err
}

// nicsIn returns how many NICs of running domains are in a network, also those that lost their port when the network was stopped.
func (c *libvirtConn) nicsIn(network string) (nics int, err error) {
	list, err := c.c.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	for i := range list {
		var d libvirtxml.Domain
		if text, err := list[i].GetXMLDesc(0); err == nil && d.Unmarshal(text) == nil && d.Devices != nil {
			for _, nic := range d.Devices.Interfaces {
				if nic.Source != nil && nic.Source.Network != nil && nic.Source.Network.Network == network {
					nics++
				}
			}
		}
		_ = list[i].Free()
	}
	return nics, err
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
	name, err := n.GetName()
	if err != nil {
		return plain(err)
	}
	nics, err := c.nicsIn(name)
	if err != nil {
		return plain(err)
	}
	active, err := n.IsActive()
	if err != nil {
		return plain(err)
	}
	if active { // what others than domains have in it has a port too
		ports, err := portsOf(n)
		if err != nil {
			return plain(err)
		}
		nics = max(nics, len(ports))
	}
	if nics > 0 { // libvirt itself would take the network away from them
		return fmt.Errorf("running machines have %s in it: stop them first", lab.Plural(nics, "NIC"))
	}
	if active {
		if err := n.Destroy(); err != nil {
			return plain(err)
		}
	}
	return plain(n.Undefine())
}
