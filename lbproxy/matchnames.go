package lbproxy

import (
	"bytes"
	"net/netip"
	"strings"
)

// A nameTable finds the frontend that matches a DNS name and a path. The zero value matches none.
type nameTable struct {
	exact map[string]pathTable
	below map[string]pathTable // by what follows "*."; "" for "*"
}

// A pathTable finds the frontend that matches a path. The zero value matches none.
type pathTable struct {
	paths   map[string]*Frontend // without "/" at their end
	longest int                  // of paths
	every   *Frontend            // that matches every path; nil: none
}

// add adds paths of f; none: every path.
func (t *pathTable) add(paths []string, f *Frontend) {
	if len(paths) == 0 {
		t.every = f
	}
	for _, path := range paths {
		if t.paths == nil {
			t.paths = make(map[string]*Frontend)
		}
		t.paths[path] = f
		t.longest = max(t.longest, len(path))
	}
}

// find returns the frontend with the longest path that target is, or is below. Both are compared as they are written.
func (t pathTable) find(target []byte) *Frontend {
	path, _, _ := bytes.Cut(target, []byte("?"))
	for len(t.paths) > 0 && len(path) > 0 {
		if len(path) <= t.longest {
			if f := t.paths[string(path)]; f != nil {
				return f
			}
		}
		path = path[:max(bytes.LastIndexByte(path, '/'), 0)]
	}
	return t.every
}

// add adds a pattern and the paths of f.
func (n *nameTable) add(pattern string, paths []string, f *Frontend) {
	into, name := &n.exact, canonical(pattern)
	if rest, wild := strings.CutPrefix(name, "*"); wild {
		into, name = &n.below, strings.TrimPrefix(rest, ".")
	}
	if *into == nil {
		*into = make(map[string]pathTable)
	}
	t := (*into)[name]
	t.add(paths, f)
	(*into)[name] = t
}

// find returns the frontend with the most specific pattern for a canonical name and a target: the name itself, then the
// longest "*." pattern, of those that have a path for the target. It returns nil if none matches.
func (n *nameTable) find(name string, target []byte) *Frontend {
	if name == "" {
		return nil
	}
	if f := n.exact[name].find(target); f != nil {
		return f
	}
	for rest := name; len(n.below) > 0; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			return n.below[""].find(target)
		}
		if f := n.below[parent].find(target); f != nil {
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
