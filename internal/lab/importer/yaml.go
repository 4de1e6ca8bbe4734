package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A place is where a statement stands in a file that is imported.
type place struct {
	file string
	line int
	text string // the statement, or its first words
}

// A line is a line of a file that is imported.
type line struct {
	file   string
	number int
}

func (p place) on() line { return line{p.file, p.line} }

// A mapping is a mapping of the lab file. Its keys are in the order of keyOrder, then in that of insertion.
type mapping struct {
	entries []*entry
	byKey   map[string]*entry // of entries
}

// An entry is a key with its value: text, a list of texts or mappings, or a mapping.
type entry struct {
	key    string // empty: an item of a list
	at     place
	also   []place // other statements that say the same
	text   string
	list   []*entry
	sub    *mapping
	quoted bool   // of a key: an option's number
	remark string // a comment behind it; printable, on one line
	// needed says that the mapping means something else without the entry, so that both are left out together.
	needed bool
	// isList tells an empty list from a text.
	isList bool
	texts  map[string]*entry // of list, once append has added one
	parent *entry            // of the mapping or list that the entry is in
}

// keyOrder is the order of keys within a mapping, as docs/lab-file.md has it; topOrder that of the whole file.
const (
	topOrder = "version domain appliance networks profiles hosts clusters dns balancers hypervisors"
	keyOrder = `subnet interface address router dns search ntp mtu lease dhcp range mac arch vendor_class user_class
		circuit_id remote_id ip ip6 network cluster aliases listen mode balance kind path port expect interval timeout rise fall
		weight backup forward forward_zones uri bridges hypervisor cpus memory disks firmware machine cpu model boot size volume pool
		bus format cache domain routes options pools zones backends match check send_proxy accept_proxy
		max_connections timeouts nics vm`
)

// set puts a text, and replaces one of that key.
func (m *mapping) set(key string, at place, text string) *entry {
	return m.add(&entry{key: key, at: at, text: text})
}

// setList puts a list of texts.
func (m *mapping) setList(key string, at place, items ...string) *entry {
	e := &entry{key: key, at: at, isList: true}
	for _, text := range items {
		e.list = append(e.list, &entry{at: at, text: text})
	}
	return m.add(e)
}

// append adds a text to a list, which it makes, unless it is there; then it returns nil.
func (m *mapping) append(key string, at place, text string) *entry {
	e := m.get(key)
	if e == nil {
		e = m.add(&entry{key: key, at: at, isList: true})
	}
	if e.texts == nil {
		e.texts = map[string]*entry{}
		for _, i := range e.list {
			e.texts[i.text] = i
		}
	}
	if same := e.texts[text]; same != nil {
		same.also = append(same.also, at)
		return nil
	}
	item := &entry{at: at, text: text}
	e.texts[text] = item
	e.list = append(e.list, item)
	return item
}

// appendMap adds a mapping to a list.
func (m *mapping) appendMap(key string, at place, item *mapping) *entry {
	e := m.get(key)
	if e == nil {
		e = m.add(&entry{key: key, at: at, isList: true})
	}
	added := &entry{at: at, sub: item}
	e.list = append(e.list, added)
	return added
}

// under returns the mapping of a key, which it makes.
func (m *mapping) under(key string, at place) *mapping {
	if e := m.get(key); e != nil {
		return e.sub
	}
	return m.add(&entry{key: key, at: at, sub: &mapping{}}).sub
}

// need puts a text without which the mapping means something else.
func (m *mapping) need(key string, at place, text string) { m.set(key, at, text).needed = true }

// needList puts a list without which the mapping means something else.
func (m *mapping) needList(key string, at place, items ...string) {
	m.setList(key, at, items...).needed = true
}

func (m *mapping) add(e *entry) *entry {
	if old := m.get(e.key); old != nil {
		m.entries[slices.Index(m.entries, old)] = e
		if old.text != "" && old.text == e.text {
			e.also = append(old.also, old.at)
		}
	} else {
		m.entries = append(m.entries, e)
	}
	if m.byKey == nil {
		m.byKey = map[string]*entry{}
	}
	m.byKey[e.key] = e
	return e
}

func (m *mapping) get(key string) *entry { return m.byKey[key] }

// value returns the text of a key, or "".
func (m *mapping) value(key string) string {
	if e := m.get(key); e != nil {
		return e.text
	}
	return ""
}

// path returns the keys that lead to e, as errors of the loader write them.
func (e *entry) path() string {
	if e.parent == nil {
		return e.key
	}
	if e.key == "" {
		return fmt.Sprintf("%s[%d]", e.parent.path(), slices.Index(e.parent.list, e))
	}
	return e.parent.path() + "." + e.key
}

// A writer prints a mapping as YAML, and remembers which entry each line is of.
type writer struct {
	b     strings.Builder
	lines []*entry // lines[0] is line 1
	// flow prints short mappings and lists on one line. Without it each value has a line of its own.
	flow bool
}

const maxFlow = 120 // columns of a line in flow style

func (w *writer) line(e *entry, indent int, text string) {
	if e.remark != "" {
		text += " # " + e.remark
	}
	w.b.WriteString(strings.Repeat(" ", indent) + text + "\n")
	w.lines = append(w.lines, e)
}

func (w *writer) mapping(m *mapping, parent *entry, indent int) {
	for _, e := range m.entries {
		e.parent = parent
		w.entry(e, indent)
	}
}

// sort puts the keys of m, and of what is in it, in order.
func (m *mapping) sort(order string) {
	keys := strings.Fields(order)
	rank := func(e *entry) int {
		if i := slices.Index(keys, e.key); i >= 0 {
			return i
		}
		return len(keys)
	}
	slices.SortStableFunc(m.entries, func(a, b *entry) int { return rank(a) - rank(b) })
	for _, e := range m.entries {
		if e.sub != nil {
			e.sub.sort(keyOrder)
		}
		for _, i := range e.list {
			if i.sub != nil {
				i.sub.sort(keyOrder)
			}
		}
	}
}

func (w *writer) entry(e *entry, indent int) {
	lead := "- "
	if e.key != "" {
		lead = scalar(e.key) + ": "
		if e.quoted {
			lead = `"` + e.key + `": `
		}
	}
	empty := e.sub != nil && len(e.sub.entries) == 0 || e.isList && len(e.list) == 0
	scalar := e.sub == nil && !e.isList || empty
	if scalar || w.flow && indent > 0 && e.parent != nil && simple(e) {
		if text := lead + flowText(e); scalar || indent+len(text) <= maxFlow {
			w.line(e, indent, text)
			return
		}
	}
	w.line(e, indent, strings.TrimRight(lead, " "))
	if e.sub != nil {
		w.mapping(e.sub, e, indent+2)
	}
	for _, item := range e.list {
		item.parent = e
		w.entry(item, indent+2)
	}
}

// simple reports whether e may be on one line: texts, lists of texts, and mappings of those, not too many, and none with a remark.
func simple(e *entry) bool {
	if len(e.list) > maxFlow || e.sub != nil && len(e.sub.entries) > maxFlow {
		return false
	}
	remarked := func(e *entry) bool { return e.remark != "" }
	if slices.ContainsFunc(e.list, remarked) {
		return false
	}
	deep := func(e *entry) bool { return e.sub != nil || len(e.list) > 0 || remarked(e) }
	if e.sub == nil {
		return !slices.ContainsFunc(e.list, func(i *entry) bool { return i.sub != nil && slices.ContainsFunc(i.sub.entries, deep) })
	}
	return !slices.ContainsFunc(e.sub.entries, func(i *entry) bool { return i.sub != nil || slices.ContainsFunc(i.list, deep) })
}

func flowText(e *entry) string {
	var parts []string
	switch {
	case e.sub != nil:
		for _, i := range e.sub.entries {
			key := scalar(i.key)
			if i.quoted {
				key = `"` + i.key + `"`
			}
			parts = append(parts, key+": "+flowText(i))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case e.isList:
		for _, i := range e.list {
			parts = append(parts, flowText(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return scalar(e.text)
}

// plain is text that means itself in YAML, within [] and {} too.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./](?:[A-Za-z0-9_./@+=-]|:[A-Za-z0-9_./@+=-])*$`)

// scalar returns a text as YAML. Unlike Go's escapes, those of YAML have no \x7f-like forms beyond these: \uXXXX is of both.
func scalar(text string) string {
	if plain.MatchString(text) && text != "null" && text != "Null" && text != "NULL" {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f || r > 0x7e && r < 0xa0 || r == 0xfeff || r >= 0x2028 && r <= 0x2029 || r >= 0xfffe && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
