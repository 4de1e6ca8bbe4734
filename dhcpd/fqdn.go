package dhcpd

import "strings"

// Flags of option 81 (RFC 4702 section 2.1).
const (
	fqdnServer   = 1 << 0 // S: the server registers the address
	fqdnOverride = 1 << 1 // O: the server does not do what the client asked for
	fqdnEncoded  = 1 << 2 // E: the name is written in labels, else as text
	fqdnNoUpdate = 1 << 3 // N: nobody registers anything
)

const fqdnHeader = 3 // flags and two codes that nobody uses any more

// fqdnName returns what the client calls itself in option 81, as text.
func fqdnName(v []byte) []byte {
	if len(v) <= fqdnHeader {
		return nil
	}
	if v[0]&fqdnEncoded == 0 {
		return v[fqdnHeader:]
	}
	var b []byte
	for rest := v[fqdnHeader:]; len(rest) > 0 && rest[0] > 0; {
		n := int(rest[0])
		if n > 63 || len(rest) < 1+n {
			break
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		b = append(b, rest[1:1+n]...)
		rest = rest[1+n:]
	}
	return b
}

// answerFQDN answers option 81: this server's own DNS knows every lease, so it registers the name, whatever the client
// would rather do, unless the client wants nobody to (RFC 4702 section 4). name and domain are what the machine is called
// here; without a name, what it calls itself.
func answerFQDN(asked []byte, name, domain string) []byte {
	if len(asked) < fqdnHeader {
		return nil
	}
	flags := asked[0] & fqdnEncoded
	switch {
	case asked[0]&fqdnNoUpdate != 0:
		flags |= fqdnNoUpdate
	case asked[0]&fqdnServer != 0:
		flags |= fqdnServer
	default:
		flags |= fqdnServer | fqdnOverride
	}
	full := strings.Trim(name+"."+domain, ".")
	if name == "" {
		full = string(fqdnName(asked))
	}
	b := []byte{flags, 255, 255} // RFC 4702 section 2.2: the codes are 255 in an answer
	if flags&fqdnEncoded == 0 {
		return append(b, full...)
	}
	return appendName(b, full, map[string]int{})
}
