package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/bootlab/bootlab/internal/lab"
)

// options returns DHCP options sorted by code. ownKey names the key that an option has of its own.
func (r *resolver) options(raw *dict[either[payload, rawOption]], key string, ownKey func(code uint64) string) []lab.Option {
	if !raw.set() {
		return nil
	}
	options := make([]lab.Option, 0, len(raw.Entries))
	seen := map[uint64]*entry[either[payload, rawOption]]{}
	for _, e := range raw.Entries {
		at := key + ".options." + e.Name
		code, err := strconv.ParseUint(e.Name, 10, 8)
		switch {
		case err != nil || code == 0 || code == 255:
			r.fail(e.spot, at, "%q is not the number of a DHCP option: want %s", e.Name, optionNumber(e.Name, ownKey))
			continue
		case seen[code] != nil:
			r.fail(e.spot, at, "option %d is defined twice, here and at %s: want it once", code, r.pos(seen[code].spot))
		case protocolOption(code):
			r.forget(at)
			r.fail(e.spot, at, "option %d belongs to the protocol and is set by the server: leave it out", code)
		case ownKey(code) != "":
			r.forget(at)
			r.fail(e.spot, at, "option %d has a key of its own: want %s", code, ownKey(code))
		}
		seen[code] = e
		options = append(options, r.option(e, at, uint8(code)))
	}
	slices.SortFunc(options, func(a, b lab.Option) int { return int(a.Code) - int(b.Code) })
	return options
}

func (r *resolver) option(e *entry[either[payload, rawOption]], key string, code uint8) lab.Option {
	long := e.V.Long
	if long == nil {
		r.textOption(&e.V.Short, key, code)
		return lab.Option{Code: code, Data: e.V.Short.V}
	}
	missing(r, &long.Value, e.spot, key+".value", "the value of the option, such as text:word")
	r.textOption(&long.Value, key+".value", code)
	return lab.Option{Code: code, Data: long.Value.V, Force: bool(long.Force.or(false))}
}

// textOption reports an address, in four bytes, where machines look for text.
func (r *resolver) textOption(v *scalar[payload], key string, code uint8) {
	if !v.ok() || len(v.V) != 4 || !slices.Contains([]uint8{15, 17, 66, 67, 114}, code) {
		return
	}
	if a := netip.AddrFrom4([4]byte(v.V)); slices.ContainsFunc(v.V, func(c byte) bool { return c < ' ' || c > '~' }) {
		r.fail(v.spot, key, "option %d is text, and this is an address in four bytes: want text:%s", code, a)
	}
}

// optionNumber returns the number or key of an option by its name in other DHCP servers.
func optionNumber(name string, ownKey func(code uint64) string) string {
	known, _ := lab.OptionCode(name)
	code := uint64(known)
	switch {
	case code == 0 || protocolOption(code):
		return "1 to 254"
	case ownKey(code) != "":
		return ownKey(code) + ", which is a key of its own"
	}
	return fmt.Sprintf(`"%d"`, code)
}

const optionBootFile = 67

// bootFiles warns of an option 67 that overrides the boot file of a profile: those machines would never get their scripts.
func (r *resolver) bootFiles() {
	for i, e := range r.raw.Networks.Entries {
		n := r.lab.Networks[i]
		r.bootFile(&e.V.Options, "networks."+n.Name, r.bootsFrom(n))
		for j, pool := range e.V.Pools.Entries {
			p, boots := n.Pools[j], ""
			if p.Profile != nil {
				boots = p.Profile.Name
			}
			r.bootFile(&pool.V.Options, "networks."+n.Name+".pools."+p.Name, boots)
		}
	}
	for _, h := range r.lab.Hosts {
		if h.Options != nil && h.Profile != nil {
			r.bootFile(&r.raw.Hosts.byName[h.Name].V.Options, "hosts."+h.Name, h.Profile.Name)
		}
	}
}

func (r *resolver) bootFile(options *dict[either[payload, rawOption]], at, boots string) {
	for _, e := range options.Entries {
		if code, _ := strconv.Atoi(e.Name); code == optionBootFile && boots != "" {
			r.lab.Warnings.Addf(r.pos(e.spot), at+".options."+e.Name, "overrides what profile %s boots: leave it out, or set it for machines without a profile only", boots)
		}
	}
}

// bootsFrom returns a profile whose machines get the options of n, or "".
func (r *resolver) bootsFrom(n *lab.Network) string {
	for _, p := range n.Pools {
		if p.Profile != nil && p.Options == nil {
			return p.Profile.Name
		}
	}
	for _, h := range r.lab.Hosts {
		if h.Network == n && h.Profile != nil && h.Options == nil && len(h.MACs) > 0 {
			return h.Profile.Name
		}
	}
	return ""
}

// protocolOption reports whether only the client or the DHCP server sets an option: requested address, overload, message
// type, server identifier, parameter list, message, maximum size, renewal and rebinding time, client identifier (RFC 2132
// section 9), rapid commit, client FQDN, relay information, and what firmware says of itself (RFC 4578).
func protocolOption(code uint64) bool {
	switch code {
	case 50, 52, 53, 54, 55, 56, 57, 58, 59, 61, 80, 81, 82, 93, 94, 97:
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

// hostOptionKey is for hosts and pools: router, name servers and the like have keys of their own in networks alone.
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
