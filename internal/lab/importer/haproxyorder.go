package importer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// maxOrderNotes is how many rules before one are named that it takes requests from.
const maxOrderNotes = 16

// A ruleTable has the routes of an address by the patterns of their match: a host or server name ("" is any), and a path without "/" at
// its end ("" is any).
type ruleTable map[string]map[string]ruleEntry

// A ruleEntry has the numbers of the first route with a pattern, and of the first that has a balancer; -1: none.
type ruleEntry struct{ first, made int }

// order notes for which requests the balancers of an address choose another backend than HAProxy. HAProxy takes the first rule that
// holds; here the most specific host decides, then the longest path. The routes are in HAProxy's order, and made has their balancers.
func (h *haproxy) order(routes []proxyRoute, made []*mapping, nameIs string) {
	t := ruleTable{}
	for i, r := range routes {
		for host, path := range r.patterns() {
			if t[host] == nil {
				t[host] = map[string]ruleEntry{}
			}
			e, found := t[host][path]
			if !found {
				e = ruleEntry{i, -1}
			}
			if e.made < 0 && serves(made[i]) {
				e.made = i
			}
			t[host][path] = e
		}
	}
	paths := t.inOrder()
	noted := map[[2]int]bool{}
	taken := map[int]int{} // notes by the route that takes the requests
	compare := func(host, path string) {
		first, here := t.find(host, path)
		if here < 0 || first == here || routes[first].backend == routes[here].backend && routes[first].redirect == routes[here].redirect || noted[[2]int{first, here}] {
			return
		}
		noted[[2]int{first, here}] = true
		if taken[here]++; taken[here] > maxOrderNotes {
			return
		}
		h.otherOrder(routes[first], routes[here], made[first], request(nameIs, host, path), taken[here] == maxOrderNotes)
	}
	for i, r := range routes {
		for host, path := range r.patterns() {
			compare(host, path)
			// A rule about more hosts and a longer path, before this one: here the host decides.
			for _, wider := range chain(host)[1:] {
				for _, p := range paths[wider] {
					if t[wider][p].first > i || taken[i] > maxOrderNotes {
						break
					}
					if len(p) > len(path) && within("path", p, path) {
						compare(host, p)
					}
				}
			}
		}
	}
}

// reached removes from rules about names alone, or paths alone, those that an earlier such rule has: HAProxy never asks them about these.
func (h *haproxy) reached(routes []proxyRoute) []proxyRoute {
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(routes, func(r proxyRoute) bool {
		if len(r.match.entries) != 1 {
			return false
		}
		var left []*entry
		values := r.match.entries[0].list
		for host, path := range r.patterns() {
			if key := [2]string{host, path}; !seen[key] {
				seen[key] = true
				left = append(left, values[0])
			}
			values = values[1:]
		}
		if r.match.entries[0].list = left; len(left) == 0 {
			h.note(r.at, "rules before it have all that it selects, so that HAProxy never uses it: it is left out")
		}
		return len(left) == 0
	})
}

// otherOrder notes requests that HAProxy gives to the rule first, and bootlab to here. The balancer of first is nil, or has no
// backends, where it is left out. More says that further rules are not named.
func (h *haproxy) otherOrder(first, here proxyRoute, made *mapping, request string, more bool) {
	further := ""
	if more {
		further = "; more rules before it are not listed"
	}
	switch {
	case serves(made):
		h.note(here.at, "HAProxy takes the first rule that holds, for %s %s (%s:%d); here the most specific host, then the longest path decides, which is this one: "+
			"write a balancer with a match of both, and the backends of that rule%s", request, clip(first.at.text), first.at.file, first.at.line, further)
	case made != nil:
		h.weaker(first.at, "it has no server, and HAProxy refuses what it selects; here %s gets to %s (%s:%d)%s", request, clip(here.at.text), here.at.file, here.at.line, further)
	default:
		h.note(first.at, "it has no balancer: %s gets to %s (%s:%d)%s", request, clip(here.at.text), here.at.file, here.at.line, further)
	}
}

// serves reports whether a balancer redirects, or has backends. One without either is left out.
func serves(m *mapping) bool {
	return m != nil && (m.get("backends") == nil || len(m.get("backends").list) > 0)
}

// request describes requests for a host and a path; empty: any.
func request(nameIs, host, path string) string {
	switch {
	case host == "" && path == "":
		return "every request"
	case host == "":
		return "path " + clip(path)
	case path == "":
		return nameIs + " " + clip(host)
	}
	return nameIs + " " + clip(host) + " with path " + clip(path)
}

// patterns yields each host and path of a match, as a ruleTable has them.
func (r proxyRoute) patterns() func(yield func(host, path string) bool) {
	read := func(keys ...string) (all []string) {
		for _, key := range keys {
			if e := r.match.get(key); e != nil {
				all = append(all, texts(e.list)...)
			}
		}
		if len(all) == 0 {
			all = []string{""}
		}
		return all
	}
	hosts, paths := read("sni", "host"), read("path")
	return func(yield func(host, path string) bool) {
		for _, host := range hosts {
			for _, path := range paths {
				if !yield(strings.TrimSuffix(strings.ToLower(host), "."), strings.TrimRight(path, "/")) {
					return
				}
			}
		}
	}
}

// inOrder returns the paths of each host by the first route that has them.
func (t ruleTable) inOrder() map[string][]string {
	all := map[string][]string{}
	for host, paths := range t {
		all[host] = slices.SortedFunc(maps.Keys(paths), func(a, b string) int {
			return cmp.Or(cmp.Compare(paths[a].first, paths[b].first), cmp.Compare(a, b))
		})
	}
	return all
}

// chain returns the patterns that match all of a host or pattern, the most specific first.
func chain(host string) (all []string) {
	if host != "" {
		all = append(all, host)
	}
	for rest, more := strings.TrimPrefix(host, "*."), true; more; {
		if _, rest, more = strings.Cut(rest, "."); more {
			all = append(all, "*."+rest)
		}
	}
	return append(all, "")
}

// find returns the route that HAProxy takes for a host and a path, and the one that gets them here; -1: none.
func (t ruleTable) find(host, path string) (first, here int) {
	first, here = -1, -1
	for _, pattern := range chain(host) {
		paths := t[pattern]
		for p, more := path, len(paths) > 0; more; {
			if e, found := paths[p]; found {
				if first < 0 || e.first < first {
					first = e.first
				}
				if here < 0 {
					here = e.made
				}
			}
			more = p != ""
			p = p[:max(strings.LastIndexByte(p, '/'), 0)]
		}
	}
	return first, here
}
