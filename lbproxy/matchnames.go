package lbproxy

import (
	"net/netip"
	"strings"
)

// A nameTable finds the frontend that matches a DNS name. The zero value matches none.
type nameTable struct {
	exact map[string]*Frontend
	below map[string]*Frontend // by what follows "*."; "" for "*"
}

// add adds a pattern of f.
func (n *nameTable) add(pattern string, f *Frontend) {
	into, name := &n.exact, canonical(pattern)
	if rest, wild := strings.CutPrefix(name, "*"); wild {
		into, name = &n.below, strings.TrimPrefix(rest, ".")
	}
	if *into == nil {
		*into = make(map[string]*Frontend)
	}
	(*into)[name] = f
}

// find returns the frontend with the most specific pattern for a canonical name: the name itself, then the longest "*."
// pattern. It returns nil if none matches.
func (n *nameTable) find(name string) *Frontend {
	if name == "" {
		return nil
	}
	if f := n.exact[name]; f != nil {
		return f
	}
	for rest := name; len(n.below) > 0; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			return n.below[""]
		}
		if f := n.below[parent]; f != nil {
			return f
		}
		rest = parent
	}
	return nil
}

// canonical returns a name in lower case without the final dot.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// hostname returns the canonical name in a Host header (RFC 9110 section 7.2): without the port, an IPv6 address
// without its brackets.
func hostname(host string) string {
	if ap, err := netip.ParseAddrPort(host); err == nil {
		return ap.Addr().String()
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, _, _ = strings.Cut(inner, "]")
		return canonical(inner)
	}
	name, _, _ := strings.Cut(host, ":")
	return canonical(name)
}
