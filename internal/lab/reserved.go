package lab

import "strings"

// ApplianceLabel is the label of the appliance in the lab's domain, if no host of the lab has its address.
const ApplianceLabel = "bootlab"

// ReservedName reports whether nobody may have a name unless the lab file says so: no DHCP client by its host name, no dynamic update, and
// no unknown machine that is adopted. The name is in lower case and relative to its zone, or to the lab's domain.
func ReservedName(relative string) bool {
	switch label, _, _ := strings.Cut(relative, "."); label {
	case "autoconfig", "autodiscover", "isatap", "wpad": // programs look them up in whatever domain they are in, and trust the answer
		return true
	case "broadcasthost", "ip6-allhosts", "ip6-allnodes", "ip6-allrouters", "ip6-localhost", "ip6-localnet", "ip6-loopback", "ip6-mcastprefix", "localdomain", "localhost":
		return true // of /etc/hosts: where it lacks them, the search list finds them here, and programs take the answer for this machine
	case "*": // would answer for all of them
		return true
	}
	switch relative {
	case ApplianceLabel, "ns": // lead to this daemon: SOA and NS records have them
		return true
	case "api", "api-int": // nodes and users of a cluster send their credentials there
		return true
	}
	return false
}
