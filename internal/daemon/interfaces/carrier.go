package interfaces

import (
	"github.com/bootlab/bootlab/internal/host/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// NoCarrier says why nobody is reached on the interface of a network though it is up, and what to do; "": it is connected, or a bridge without
// a port in a lab with virtual machines, which bring theirs.
func NoCarrier(l *lab.Lab, n *lab.Network) (problem, fix string) {
	none, noPort := links.NoCarrier(n.Interface)
	switch {
	case !none, noPort && len(l.Hypervisors) > 0:
		return "", ""
	case noPort:
		return "has no carrier: the bridge has no port", "run ip link set NIC master " + n.Interface
	}
	return "has no carrier: a cable is not connected", "look at ip link show " + n.Interface
}
