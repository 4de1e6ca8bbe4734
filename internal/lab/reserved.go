package lab

import (
	"slices"
	"strings"
)

// unasked are labels that programs look up in whatever domain they are in, and trust: proxy discovery of browsers, tunnels, the machine
// itself. "*" would answer for all of them.
var unasked = []string{"*", "isatap", "localhost", "wpad"}

// appliance are names that lead to this daemon: SOA and NS records have them.
var appliance = []string{"bootlab", "ns"}

// ReservedName reports whether neither a DHCP client nor a dynamic update may have a name unless the lab file says so. The name is in
// lower case and relative to its zone.
func ReservedName(relative string) bool {
	label, _, _ := strings.Cut(relative, ".")
	return slices.Contains(unasked, label) || slices.Contains(appliance, relative)
}
