package lab

import (
	"slices"
	"strconv"
)

// options returns DHCP options sorted by code. ownKey names the key that an option has of its own.
func (r *resolver) options(raw *dict[either[payload, rawOption]], key string, ownKey func(code uint64) string) []Option {
	if !raw.set() {
		return nil
	}
	options := make([]Option, 0, len(raw.Entries))
	seen := map[uint64]*entry[either[payload, rawOption]]{}
	for _, e := range raw.Entries {
		at := key + ".options." + e.Name
		code, err := strconv.ParseUint(e.Name, 10, 8)
		switch {
		case err != nil || code == 0 || code == 255:
			r.fail(e.spot, at, "%q is not the number of a DHCP option: want 1 to 254", e.Name)
			continue
		case seen[code] != nil:
			r.fail(e.spot, at, "option %d is here and at %s: want it once", code, r.pos(seen[code].spot))
		case protocolOption(code):
			r.fail(e.spot, at, "option %d belongs to the protocol and is set by the server: want it left out", code)
		case ownKey(code) != "":
			r.fail(e.spot, at, "option %d has a key of its own: want %s", code, ownKey(code))
		}
		seen[code] = e
		options = append(options, r.option(e, at, uint8(code)))
	}
	slices.SortFunc(options, func(a, b Option) int { return int(a.Code) - int(b.Code) })
	return options
}

func (r *resolver) option(e *entry[either[payload, rawOption]], key string, code uint8) Option {
	long := e.V.Long
	if long == nil {
		return Option{Code: code, Data: e.V.Short.V}
	}
	missing(r, &long.Value, e.spot, key+".value", "the value of the option, such as text:word")
	return Option{Code: code, Data: long.Value.V, Force: bool(long.Force.or(false))}
}

// protocolOption reports whether an option carries the exchange itself: overload, message type, server identifier,
// parameter list, message, maximum size, client identifier (RFC 2132 section 9), rapid commit, relay information.
func protocolOption(code uint64) bool {
	switch code {
	case 50, 52, 53, 54, 55, 56, 57, 61, 80, 82:
		return true
	}
	return false
}

func networkOptionKey(code uint64) string {
	switch code {
	case 3:
		return "router"
	case 6:
		return "dns"
	case 26:
		return "mtu"
	case 42:
		return "ntp"
	case 119:
		return "search"
	}
	return hostOptionKey(code)
}

func hostOptionKey(code uint64) string {
	switch code {
	case 1:
		return "subnet"
	case 12:
		return "the host's name"
	case 51:
		return "lease"
	case 121, 249:
		return "routes"
	}
	return ""
}
