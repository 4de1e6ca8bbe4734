package importer

import (
	"encoding/hex"
	"slices"
	"strings"
)

// A tag is what sets a tag of dnsmasq.
type tag struct {
	// criteria are keys and patterns of a pool: a client that matches one of them has the tag.
	criteria map[string][]string
	// macs are the patterns of dhcp-mac, which set the tag for machines with a reservation too. Those of dhcp-host do not: a machine has one
	// dhcp-host, and its own comes first.
	macs []string
	// boots says that the tag tells boot programs apart, such as iPXE: bootlab does so by itself.
	boots bool
	// other is a statement that sets the tag and has no equivalent.
	other string
}

func (q *dnsmasq) tag(name string) *tag {
	t := q.tags[name]
	if t == nil {
		t = &tag{criteria: map[string][]string{}}
		q.tags[name] = t
	}
	return t
}

// tagsOf takes the words that begin a statement and are about tags: set:x, tag:x, tag:!x and the older net:x.
func tagsOf(words []string) (set, need, rest []string) {
	for i, w := range words {
		form, name, ok := strings.Cut(w, ":")
		switch {
		case ok && form == "set":
			set = append(set, name)
		case ok && (form == "tag" || form == "net"):
			need = append(need, bareTag(name))
		default:
			return set, need, words[i:]
		}
	}
	return set, need, nil
}

// bareTag returns a tag that may be negated by #, as in older files, with the ! of today.
func bareTag(name string) string {
	if not, negated := strings.CutPrefix(name, "#"); negated {
		return "!" + not
	}
	return name
}

// optionTags takes the tags before an option. A word without a prefix is one too, as in older files, unless it is the last or a number.
func optionTags(words []string) (need, rest []string) {
	for rest = words; len(rest) > 0; rest = rest[1:] {
		var more []string
		_, more, rest = tagsOf(rest)
		need = append(need, more...)
		if len(rest) < 2 || strings.Contains(rest[0], ":") || strings.Trim(rest[0], "0123456789") == "" {
			break
		}
		need = append(need, bareTag(rest[0]))
	}
	return need, rest
}

// readTags reads what sets tags by what a client sends.
func (q *dnsmasq) readTags() {
	for _, c := range []struct{ key, criterion string }{
		{"dhcp-mac", "mac"}, {"dhcp-vendorclass", "vendor_class"}, {"dhcp-userclass", "user_class"}, {"dhcp-circuitid", "circuit_id"}, {"dhcp-remoteid", "remote_id"},
	} {
		for _, st := range q.statements[c.key] {
			set, pattern := q.oldSet(st)
			if set == "" || pattern == "" {
				continue
			}
			q.criterion(set, c.criterion, pattern)
		}
	}
	for _, t := range q.tags {
		t.macs = slices.Clone(t.criteria["mac"])
	}
	for _, st := range q.statements["dhcp-match"] {
		if set, rest := q.oldSet(st); set != "" {
			q.match(st, set, rest)
		}
	}
	for _, key := range []string{"tag-if", "dhcp-subscrid", "dhcp-name-match"} {
		for _, st := range q.take(key) {
			set, _, _ := tagsOf(st.words)
			for _, name := range set {
				q.tag(name).other = key
			}
			q.note(st.at, "there is no equivalent: the tag is not set")
		}
	}
}

// oldSet returns the tag that a statement sets, and the rest of its value. Older files have no "set:".
func (q *dnsmasq) oldSet(st statement) (set, rest string) {
	if len(st.words) < 2 {
		return "", ""
	}
	set = strings.TrimPrefix(strings.TrimPrefix(st.words[0], "set:"), "net:")
	return set, strings.Join(st.words[1:], ",")
}

func (q *dnsmasq) criterion(set, key, pattern string) {
	t := q.tag(set)
	switch key {
	case "mac":
		if _, after, ok := strings.Cut(pattern, "-"); ok && strings.Contains(after, ":") {
			pattern = after // the type of hardware
		}
		pattern = fullMAC(pattern)
	case "vendor_class", "user_class":
		if key == "user_class" && strings.Contains(strings.ToLower(pattern), "pxe") {
			t.boots = true
		}
		if key == "vendor_class" {
			t.boots = t.boots || strings.HasPrefix(pattern, "PXEClient") || strings.HasPrefix(pattern, "HTTPClient")
			pattern = strings.TrimPrefix(pattern, "enterprise:")
		}
		pattern = "*" + pattern + "*" // dnsmasq searches for it
	default:
		if b, ok := hexBytes(pattern); ok && strings.Contains(pattern, ":") {
			pattern = "hex:" + strings.ReplaceAll(pattern, ":", "")
			if len(b)*2 != len(pattern)-4 {
				pattern = "hex:" + hex.EncodeToString(b)
			}
		}
	}
	if !slices.Contains(t.criteria[key], pattern) {
		t.criteria[key] = append(t.criteria[key], pattern)
	}
}

// fullMAC fills the bytes of a MAC address that have one digit.
func fullMAC(s string) string {
	parts := strings.Split(s, ":")
	for i, p := range parts {
		if len(p) == 1 && p != "*" {
			parts[i] = "0" + p
		}
	}
	return strings.ToLower(strings.Join(parts, ":"))
}

// match reads the rest of dhcp-match: an option, and perhaps its value.
func (q *dnsmasq) match(st statement, set, rest string) {
	name, value, _ := strings.Cut(rest, ",")
	code, ok := optionCode(name)
	switch {
	case ok && code == 93 && value != "":
		t := q.tag(set)
		t.boots = true
		t.criteria["arch"] = append(t.criteria["arch"], value)
	case ok && code == 175:
		q.tag(set).boots = true
	case ok && code == 60 && value != "":
		q.criterion(set, "vendor_class", value)
	case ok && code == 77 && value != "":
		q.criterion(set, "user_class", value)
	default:
		q.tag(set).other = "dhcp-match"
		q.note(st.at, "a pool does not match this option: the tag is not set")
	}
}

// criteria returns what a pool must match so that its clients are those with all of the tags. It notes what cannot be said, and returns
// false if the clients would be others.
func (q *dnsmasq) criteria(st statement, need []string) (map[string][]string, bool) {
	all := map[string][]string{}
	for _, name := range need {
		if not, negated := strings.CutPrefix(name, "!"); negated {
			note := q.note
			if !q.hasPool(not) && (not != "known" || len(q.knownMACs()) > 0) {
				note = q.weaker
			}
			note(st.at, "tag:!%s is left out: the most specific pool that matches a machine is used", not)
			continue
		}
		t := q.tags[name]
		switch {
		case slices.Contains(q.interfaces, name):
			continue
		case name == "known":
			if all["mac"] = q.knownMACs(); len(all["mac"]) == 0 {
				q.note(st.at, "no known machine is without a reservation: the pool is left out")
				return nil, false
			}
			continue
		case t == nil || t.other != "" || len(t.criteria) != 1:
			q.note(st.at, "the clients with tag %s cannot be expressed by one key of a pool: the pool is left out", name)
			return nil, false
		}
		for key, patterns := range t.criteria {
			if all[key] != nil {
				q.note(st.at, "two tags are of the same key %s: the pool is left out", key)
				return nil, false
			}
			all[key] = patterns
		}
	}
	return all, true
}

// hasPool reports whether clients with a tag have a range of their own.
func (q *dnsmasq) hasPool(name string) bool {
	return slices.ContainsFunc(q.ranges, func(r *dhcpRange) bool { return slices.Contains(r.needs, name) && r.last.IsValid() })
}

// knownMACs are those of hosts without a reserved address.
func (q *dnsmasq) knownMACs() (all []string) {
	for _, r := range q.reserved {
		if !r.ip.IsValid() {
			all = append(all, r.macs...)
		}
	}
	return all
}
