// Package lab is the model: one lab, resolved and immutable.
//
// It holds every decision that more than one server must agree on: names, addresses, roles, zones, backends of balancers, and the
// paths and URLs that machines boot from. Package load makes a *Lab from the lab file; a server only re-indexes what it finds
// here. The package opens no file and no socket, and imports no other package of bootlab.
//
//	h := l.HostByMAC(mac)           // whose NIC is it?
//	n := l.NetworkOf(addr)          // which subnet holds the address?
//	p := n.PoolFor(&lab.Client{MAC: mac}) // which pool serves an unknown machine?
package lab
