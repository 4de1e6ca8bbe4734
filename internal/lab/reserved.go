package lab

import "strings"

// ReservedName reports whether neither a DHCP client nor a dynamic update may have a name unless the lab file says so. The name is in
// lower case and relative to its zone.
func ReservedName(relative string) bool {
	switch label, _, _ := strings.Cut(relative, "."); label {
	case "isatap", "localhost", "wpad": // programs look them up in whatever domain they are in, and trust the answer
		return true
	case "*": // would answer for all of them
		return true
	}
	return relative == "bootlab" || relative == "ns" // lead to this daemon: SOA and NS records have them
}
