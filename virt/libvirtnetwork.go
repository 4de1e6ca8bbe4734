//go:build cgo && libvirt_dlopen

package virt

import "libvirt.org/go/libvirt"

// networks returns the definitions of libvirt's networks. A driver without networks has none.
func (c *libvirtConn) networks() ([]string, error) {
	list, err := c.c.ListAllNetworks(0)
	if code(err) == libvirt.ERR_NO_SUPPORT {
		return nil, nil
	}
	if err != nil {
		return nil, plain(err)
	}
	var texts []string
	var failed error
	for i := range list {
		text, err := list[i].GetXMLDesc(libvirt.NETWORK_XML_INACTIVE)
		if err != nil { // without a definition for the next start
			text, err = list[i].GetXMLDesc(0)
		}
		_ = list[i].Free()
		switch {
		case code(err) == libvirt.ERR_NO_NETWORK: // undefined since the list was made
		case err != nil:
			failed = plain(err)
		default:
			texts = append(texts, text)
		}
	}
	return texts, failed
}
