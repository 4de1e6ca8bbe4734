// Package neighbour finds out whether an address is used by the machine that it belongs to.
//
// On an Ethernet segment of this machine the evidence is a MAC: that of the kernel's neighbour entry, to which every answer is sent, and
// that of a fresh answer to ARP or to a neighbour solicitation, if that was sent by the MAC that it names. Past a router there is none. The package never decides what follows from the evidence.
//
//	r, err := neighbour.Open()                    // needs CAP_NET_RAW; without it, only the kernel is asked
//	found, err := r.Find(addr, host.MACs)
//	switch found.User {
//	case neighbour.Own:       // the machine itself
//	case neighbour.Foreign:   // found.MAC has taken its address
//	case neighbour.None:      // no machine uses the address
//	case neighbour.Elsewhere: // not on a segment of this machine: nothing is known
//	}
//	found, err = r.Sender(addrPort, host.MACs, start) // who sent a request by TFTP, by the source of its frame
//	user, err := r.Requester(addrPort, request, since) // whether the machine there sent this very request
//
// A machine that also sends with the MAC of another cannot be distinguished from it.
package neighbour
