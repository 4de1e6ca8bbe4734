package wire

import "strings"

// Flags of option 81 (RFC 4702 section 2.1).
const (
	fqdnServer   = 1 // S: the server keeps the forward name
	fqdnOverride = 2 // O: and did not do as the client wished
	fqdnWire     = 4 // E: the name is written as in DNS, not as text
	fqdnNone     = 8 // N: the server keeps no name
)

// An FQDN is a client's option 81 (RFC 4702): its name in DNS.
type FQDN struct {
	Flags uint8
	Name  []byte // as it came: in DNS's own form (without compression, and perhaps without its end) if Flags has E, else text
}

// FQDN returns option 81, false if the client did not send it or cut it short.
func (r *Packet) FQDN() (FQDN, bool) {
	if len(r.fqdn) < 3 {
		return FQDN{}, false
	}
	return FQDN{Flags: r.fqdn[0], Name: r.fqdn[3:]}, true
}

// label returns the first label of the name.
func (f FQDN) label() []byte {
	if f.Flags&fqdnWire == 0 {
		return firstLabel(f.Name)
	}
	if len(f.Name) == 0 || len(f.Name) < 1+int(f.Name[0]) {
		return nil
	}
	return f.Name[1 : 1+int(f.Name[0])]
}

// answerFlags returns the flags of the reply. This daemon's DNS server answers for the names of leases, forward and reverse,
// and accepts no updates from clients. So the reply has S, with O for a client that asked for something else, and N if the
// lease has no name. E is as the client sent it (RFC 4702 section 4).
func (f FQDN) answerFlags(named bool) uint8 {
	flags := f.Flags & fqdnWire
	switch {
	case !named:
		flags |= fqdnNone
		if f.Flags&fqdnServer != 0 {
			flags |= fqdnOverride
		}
	case f.Flags&fqdnServer == 0:
		flags |= fqdnServer | fqdnOverride
	default:
		flags |= fqdnServer
	}
	return flags
}

// append writes the value of option 81. Both result codes are 255, since they are deprecated (RFC 4702 section 2.2).
func (f FQDN) append(b []byte, name string) []byte {
	b = append(b, f.answerFlags(name != ""), 255, 255)
	if f.Flags&fqdnWire == 0 {
		return append(b, name...)
	}
	for name != "" {
		var label string
		label, name, _ = strings.Cut(name, ".")
		b = append(append(b, uint8(len(label))), label...)
	}
	return append(b, 0)
}
