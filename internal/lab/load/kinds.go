package load

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/lab"
)

// A scalar is one textual value and its place.
type scalar[T any] struct {
	V T
	spot
}

func (s *scalar[T]) decode(d *decoder, n *yaml.Node) {
	if !s.place(d, n) {
		return
	}
	content, ok := d.scalarText(n)
	var err error
	if ok {
		if err = textOf(&s.V).parse(content); err == nil {
			return
		}
		d.problem(n, "%v", err)
	}
	if _, ok := errors.AsType[*guessed](err); !ok {
		s.file |= badBit
	}
	d.retries = append(d.retries, retry{samplesOf(textOf(&s.V)), s.try})
}

// try gives a value that is not valid another text, until undo is called.
func (s *scalar[T]) try(sample string) (undo func(), ok bool) {
	before := *s
	if textOf(&s.V).parse(sample) != nil {
		*s = before
		return nil, false
	}
	s.file &^= badBit
	return func() { *s = before }, true
}

// ok reports whether the value is set and valid.
func (s *scalar[T]) ok() bool { return s.set() && !s.bad() }

// or returns the value, or fallback if it is not set or not valid.
func (s *scalar[T]) or(fallback T) T {
	if s.ok() {
		return s.V
	}
	return fallback
}

// A repeated is a scalar that several files may hold, if they agree.
type repeated[T comparable] struct{ scalar[T] }

func (r *repeated[T]) decode(d *decoder, n *yaml.Node) {
	var again scalar[T]
	again.decode(d, n)
	switch {
	case !r.set():
		r.scalar = again
	case again.ok() && r.ok() && again.V != r.V:
		d.twice(n, r.spot)
	}
}

// A list is a list of raw values.
type list[T any] struct {
	Items []T
	spot
}

func (l *list[T]) decode(d *decoder, n *yaml.Node) {
	if !l.place(d, n) {
		return
	}
	before, n := d.enter(n)
	defer d.leave(before)
	if n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		l.file |= badBit
		if n.Kind == yaml.ScalarNode && n.Style == 0 && len(n.Value) > 1 && n.Value[0] == '-' {
			d.problem(n, "is %q: want a list; a space is missing after -", lab.Shortened(n.Value, maxShown))
			return
		}
		if n.Kind == yaml.MappingNode {
			d.problem(n, "is a mapping: want a list, whose items begin with - and a space")
			return
		}
		d.problem(n, "is %s: want a list, such as %s", describe(n), listOf(n))
		return
	}
	l.items(d, n)
}

// listOf returns the list that a value which is none may stand for, or an example.
func listOf(n *yaml.Node) string {
	const special = "[]{}#&*!|>'\"%@`\n\t"
	if v := n.Value; n.Kind == yaml.ScalarNode && v != "" && len(v) <= maxShown && !strings.ContainsAny(v, special) && !strings.Contains(v, ": ") {
		return "[" + v + "]"
	}
	return "[a, b]"
}

func (l *list[T]) items(d *decoder, n *yaml.Node) {
	l.Items = make([]T, len(n.Content))
	for i, item := range n.Content {
		d.path = append(d.path, step{index: i})
		d.into(item, &l.Items[i])
		d.path = d.path[:len(d.path)-1]
	}
}

// A scalars is a list of textual values.
type scalars[T any] = list[scalar[T]]

// values returns the valid values of a list of textual values, or nil for none.
func values[T, V any](l scalars[T], value func(T) V) []V {
	var out []V
	for i := range l.Items {
		if l.Items[i].ok() {
			if out == nil {
				out = make([]V, 0, len(l.Items))
			}
			out = append(out, value(l.Items[i].V))
		}
	}
	return out
}

// An oneOrMore is a list, where a single value is a list of one. No value at all is an empty scalar, not an empty list: with a forgotten MAC a
// host would silently have no reservation.
type oneOrMore[T any] struct{ scalars[T] }

func (l *oneOrMore[T]) decode(d *decoder, n *yaml.Node) {
	if aliased(n).Kind != yaml.ScalarNode || l.set() {
		l.scalars.decode(d, n)
		return
	}
	l.spot = d.spot(n)
	l.Items = make([]scalar[T], 1)
	l.Items[0].decode(d, n)
}

// A dict is a mapping with free keys, sorted by key once decoding is over.
type dict[T any] struct {
	Entries []*entry[T]
	spot
	byName map[string]*entry[T]
}

// An entry is one key of a dict, its place, and its value.
type entry[T any] struct {
	Name string
	spot
	V T
}

func (m *dict[T]) decode(d *decoder, n *yaml.Node) {
	if !m.set() {
		m.spot = d.spot(n)
	}
	before, n := d.enter(n)
	defer d.leave(before)
	if n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.incomplete[d.key()] = true
		d.problem(n, "is %s: want names with values", describe(n))
		return
	}
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Struct && d.nameless(n, t) {
		d.incomplete[d.key()] = true
		d.problem(n, "a name is missing above %s: want NAME: with the keys below it, indented", n.Content[0].Value)
		return
	}
	m.entries(d, n, nil)
	slices.SortFunc(m.Entries, func(a, b *entry[T]) int { return strings.Compare(a.Name, b.Name) })
}

// nameless reports whether the keys of n, which should be names, are those of one entry instead, with values that no entry is.
func (d *decoder) nameless(n *yaml.Node, entry reflect.Type) bool {
	if _, custom := reflect.New(entry).Interface().(value); custom {
		return false
	}
	keys, plain := d.plan(entry), false
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, known := keys.index[n.Content[i].Value]; !known {
			return false
		}
		v := aliased(n.Content[i+1])
		plain = plain || v.Kind != yaml.MappingNode && !isNull(v)
	}
	return plain
}

// entries adds the entries of n. An entry of a merged mapping gives way to one of own, the mappings that merge it.
func (m *dict[T]) entries(d *decoder, n *yaml.Node, own map[string]bool) {
	if m.byName == nil {
		m.byName = make(map[string]*entry[T], len(n.Content)/2)
		m.Entries = make([]*entry[T], 0, len(n.Content)/2)
	}
	entries := make([]entry[T], 0, len(n.Content)/2)
	merged := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case isMerge(k):
			merged = true
			continue
		case !d.isKey(k) || own[k.Value]:
			continue
		}
		if rest, ok := d.withoutColon(k, v); ok {
			name, _, _ := strings.Cut(k.Value, " ")
			d.colonMissing(k, name)
			named := *k
			named.Value = name
			k, v = &named, rest
		}
		if first := m.byName[k.Value]; first != nil {
			d.problemKey(k, "is defined twice, here and at %s: want it once", d.pos(first.spot))
			continue
		}
		entries = append(entries, entry[T]{Name: k.Value, spot: d.spot(k)})
		e := &entries[len(entries)-1]
		m.byName[k.Value] = e
		m.Entries = append(m.Entries, e)
		d.path = append(d.path, step{k.Value, -1})
		d.into(v, &e.V)
		d.path = d.path[:len(d.path)-1]
	}
	if merged {
		m.mergeEntries(d, n)
	}
}

func (m *dict[T]) mergeEntries(d *decoder, n *yaml.Node) {
	d.merge(n, func(from *yaml.Node) {
		own := make(map[string]bool, len(m.byName))
		for name := range m.byName {
			own[name] = true
		}
		m.entries(d, from, own)
	})
}

// names returns the keys, sorted.
func (m *dict[T]) names() []string {
	names := make([]string, len(m.Entries))
	for i, e := range m.Entries {
		names[i] = e.Name
	}
	return names
}

// An opt is a struct that may be absent.
type opt[T any] struct {
	V *T
	spot
}

func (o *opt[T]) decode(d *decoder, n *yaml.Node) {
	if !o.place(d, n) {
		return
	}
	o.V = new(T)
	d.into(n, o.V)
}

// An either is written as one textual value or as a struct. Exactly one of Short and Long is set.
type either[S, L any] struct {
	Short scalar[S]
	Long  *L
	spot
}

func (e *either[S, L]) decode(d *decoder, n *yaml.Node) {
	if !e.place(d, n) {
		return
	}
	target := aliased(n)
	if target.Kind == yaml.MappingNode {
		e.Long = new(L)
		d.into(n, e.Long)
		return
	}
	e.Short.decode(d, n)
}

// A vars is a mapping of free values.
type vars struct {
	V map[string]any
	spot
}

func (v *vars) decode(d *decoder, n *yaml.Node) {
	if !v.place(d, n) {
		return
	}
	switch free := d.free(n).(type) {
	case nil:
	case map[string]any:
		v.V = free
	default:
		d.problem(n, "is %v: want names with values", free)
	}
}

// free returns a value typed as YAML 1.2 types it: string, int, float64, bool, nil, []any or map[string]any.
func (d *decoder) free(n *yaml.Node) any {
	before, n := d.enter(n)
	defer d.leave(before)
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		items := make([]any, len(n.Content))
		for i, item := range n.Content {
			items[i] = d.free(item)
		}
		return items
	case n.Kind == yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		d.freeMap(n, m)
		return m
	}
	return freeScalar(n)
}

func (d *decoder) freeMap(n *yaml.Node, m map[string]any) {
	own := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if isMerge(k) || !d.isKey(k) {
			continue
		}
		if own[k.Value] {
			d.problemKey(k, "is defined twice, here and at %s: want it once", d.firstKey(n, k.Value))
			continue
		}
		own[k.Value] = true
		if _, ok := m[k.Value]; !ok {
			m[k.Value] = d.free(n.Content[i+1])
		}
	}
	d.merge(n, func(from *yaml.Node) { d.freeMap(from, m) })
}

func freeScalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 0); err == nil {
			return int(i)
		}
	case "!!float":
		if f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err == nil {
			return f
		}
	}
	return n.Value
}
