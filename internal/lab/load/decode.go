package load

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/lab"
)

// Limits of one load, far above any lab.
const (
	maxFileSize = 16 << 20 // bytes: some 150,000 hosts, and 250 MiB of memory while it is read
	maxDepth    = 100      // nested collections
	maxAliased  = 2 << 20  // nodes visited below aliases, against alias bombs
	maxFiles    = 1<<15 - 1
)

// A spot is the compact Pos of a raw value: the file is an index into decoder.files. The zero spot is "not in the file".
type spot struct {
	line   uint32
	column uint16
	file   uint16 // the top bit marks a value that did not parse
}

const badBit = 1 << 15

func (s spot) set() bool { return s.line != 0 }
func (s spot) bad() bool { return s.file&badBit != 0 }

// A value is a raw value that decodes itself. Structs are decoded by reflection instead, key by key.
type value interface {
	decode(d *decoder, n *yaml.Node)
	schema(s *schemaWriter) any
}

// A decoder turns YAML nodes into raw values and collects what is wrong. Decoding into a value that is already set by
// another file is an error, except that dicts and structs are merged: this is how a folder becomes one lab.
type decoder struct {
	files    []string
	file     uint16
	problems lab.Problems
	plans    map[reflect.Type]*plan
	path     []step
	reported map[*yaml.Node]bool // an aliased node is reported once
	alias    *yaml.Node          // the outermost alias that leads here, or nil
	aliased  int                 // nodes visited below aliases
	depth    int
	stopped  bool // a limit was reached: the rest is skipped
	broken   bool // a file is not YAML: missing keys are not reported

	unread map[lineOf]*lab.Problem    // lines with an error of YAML's grammar
	named  map[*lab.Problem][]lab.Pos // places that the messages of problems name, where there is such a line

	aliases map[spot]bool // places of aliases, at which the problems of what they repeat are reported
	retries []retry       // values that are not valid

	// incomplete are paths of mappings in which a key was not understood: that others are missing there is probably the same mistake.
	incomplete map[string]bool
}

// A step is one key or one list index of a path.
type step struct {
	key   string
	index int // -1: a key
}

func newDecoder() *decoder {
	return &decoder{plans: map[reflect.Type]*plan{}, reported: map[*yaml.Node]bool{}, incomplete: map[string]bool{}, unread: map[lineOf]*lab.Problem{},
		named: map[*lab.Problem][]lab.Pos{}, aliases: map[spot]bool{}}
}

// A plan is how a struct type is decoded: its fields by key.
type plan struct {
	keys  []string
	index map[string]int
}

func (d *decoder) plan(t reflect.Type) *plan {
	if p := d.plans[t]; p != nil {
		return p
	}
	p := &plan{index: map[string]int{}}
	for i := range t.NumField() {
		key := t.Field(i).Tag.Get("yaml")
		p.keys = append(p.keys, key)
		p.index[key] = i
	}
	d.plans[t] = p
	return p
}

// into decodes n into p, a pointer to a value or to a struct.
func (d *decoder) into(n *yaml.Node, p any) {
	if v, ok := p.(value); ok {
		v.decode(d, n)
		return
	}
	d.structure(n, reflect.ValueOf(p).Elem())
}

// structure decodes a mapping into a struct. An empty value is an empty mapping.
func (d *decoder) structure(n *yaml.Node, v reflect.Value) {
	before, n := d.enter(n)
	defer d.leave(before)
	if n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p := d.plan(v.Type())
		d.incomplete[d.key()] = true
		if n.Kind != yaml.ScalarNode || !d.almostKey(n, p.keys) {
			d.problem(n, "is %s: want keys and values", describe(n))
		}
		return
	}
	var seen uint64
	d.fields(n, v, d.plan(v.Type()), &seen)
}

// fields sets the fields of v that n names and that are not in seen; then those of its merge keys ("<<"), which give way.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, p *plan, seen *uint64) {
	var own uint64
	merged := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if isMerge(k) {
			merged = true
			continue
		}
		field, known := p.index[k.Value]
		if !known && d.isRest(n, i, p.keys) {
			continue
		}
		if !known && d.isKey(k) {
			var meant string
			if meant, val = d.unknown(n, k, val, p.keys); meant == "" {
				continue
			}
			field = p.index[meant]
		}
		bit := uint64(1) << field
		switch {
		case !d.isKey(k):
		case own&bit != 0 && n.Style&yaml.FlowStyle == 0 && len(d.path) > 0 && d.path[len(d.path)-1].index >= 0:
			d.problemKey(k, "is defined twice, here and at %s: want it once, or - in front of the first line of another item", d.firstKey(n, k.Value))
			return // the keys below are of the other item
		case own&bit != 0:
			d.problemKey(k, "is defined twice, here and at %s: want it once", d.firstKey(n, k.Value))
		case *seen&bit != 0: // the key beside "<<" wins
		default:
			d.path = append(d.path, step{p.keys[field], -1})
			if known {
				d.into(val, v.Field(field).Addr().Interface())
			} else {
				foreign := slices.Contains(strings.Fields(otherKeys[strings.ToLower(k.Value)]), p.keys[field])
				d.guess(val, v.Field(field), foreign)
			}
			d.path = d.path[:len(d.path)-1]
		}
		own |= bit
		*seen |= bit
	}
	if merged {
		d.merge(n, func(m *yaml.Node) { d.fields(m, v, p, seen) })
	}
}

// guess decodes the value of an unknown key into the field that was probably meant, so that nothing is reported that follows from its
// absence; and nothing that follows from the guess: the word of another program, a foreign one, may have a value of another form.
func (d *decoder) guess(n *yaml.Node, field reflect.Value, foreign bool) {
	fresh, before := field.IsZero(), len(d.problems)
	d.into(n, field.Addr().Interface())
	mapping := aliased(n).Kind == yaml.MappingNode // whose own mistakes are reported
	if !mapping || foreign {
		d.problems = d.problems[:before]
	}
	if fresh && !mapping {
		guessed := reflect.ValueOf(field.Interface())
		d.retries = append(d.retries, retry{samples: []string{""}, try: func(sample string) (undo func(), ok bool) {
			if sample != "" {
				return nil, false
			}
			field.SetZero()
			return func() { field.Set(guessed) }, true
		}})
	}
}

// isRest reports whether key i of n, which n cannot have, is what follows a comma in the value before, as in {range: 10.0.0.5,10.0.0.9}: in
// braces a comma ends the value. That value is reported instead, where it is not yet.
func (d *decoder) isRest(n *yaml.Node, i int, known []string) bool {
	if i < 2 || n.Style&yaml.FlowStyle == 0 {
		return false
	}
	k, before := n.Content[i], n.Content[i-1]
	switch end := before.Column + len(before.Value); {
	case !isNull(n.Content[i+1]) || k.Kind != yaml.ScalarNode || before.Kind != yaml.ScalarNode || before.Style != 0 || k.Line != before.Line || nearestKey(k.Value, known) != "":
		return false
	case k.Column != end+1 && (k.Value == "" || k.Value[0] < '0' || k.Value[0] > '9'):
		return false
	}
	d.path = append(d.path, step{n.Content[i-2].Value, -1})
	d.problem(before, "a comma ends a value in braces, and %q behind it is no key: want quotes around the value, or the comma gone", k.Value)
	d.path = d.path[:len(d.path)-1]
	return true
}

// almostKey reports a text that would be a key and its value, if a colon or a space were not missing.
func (d *decoder) almostKey(n *yaml.Node, keys []string) bool {
	word, rest, _ := strings.Cut(n.Value, " ")
	key, value, colon := strings.Cut(word, ":")
	switch {
	case !slices.Contains(keys, key) || n.Style != 0:
		return false
	case colon:
		d.problem(after(n, key), "a space is missing after the colon of %s: want %[1]s: %s", key, lab.Shortened(value, maxShown))
	default:
		d.problem(after(n, key), "a colon is missing after %s: want %[1]s: %s", key, lab.Shortened(rest, maxShown))
	}
	return true
}

// after returns a node for the place behind text, with which n begins.
func after(n *yaml.Node, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Line: n.Line, Column: n.Column + len(text)}
}

// merge calls each with every mapping that the merge keys of n name, in order.
func (d *decoder) merge(n *yaml.Node, each func(*yaml.Node)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			d.mergeFrom(n.Content[i+1], each)
		}
	}
}

func (d *decoder) mergeFrom(source *yaml.Node, each func(*yaml.Node)) {
	before, n := d.enter(source)
	defer d.leave(before)
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		each(n)
	case n.Kind == yaml.SequenceNode && (len(n.Content) == 0 || n.Content[0].Kind != yaml.SequenceNode):
		for _, item := range n.Content {
			d.mergeFrom(item, each)
		}
	default:
		d.problem(source, "<< merges %s: want an alias of a mapping, such as *master", describe(n))
	}
}

// enter follows an alias, counts, and guards depth. The target is nil if a limit is reached. leave(before) must follow.
func (d *decoder) enter(n *yaml.Node) (before, target *yaml.Node) {
	before = d.alias
	d.depth++
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		if d.alias == nil {
			d.alias = n
			d.aliases[d.spot(n)] = true
		}
		n = n.Alias
	}
	if d.alias != nil {
		d.aliased++
	}
	switch {
	case d.stopped:
		return before, nil
	case d.depth > maxDepth:
		d.stopped = true
		d.problem(n, "is nested deeper than %d levels", maxDepth)
		return before, nil
	case d.aliased > maxAliased:
		d.stopped = true
		d.problem(n, "aliases expand to more than %d values", maxAliased)
		return before, nil
	}
	return before, n
}

func (d *decoder) leave(before *yaml.Node) {
	d.alias = before
	d.depth--
}

// scalarText returns the text of a scalar as it is written.
func (d *decoder) scalarText(n *yaml.Node) (string, bool) {
	before, n := d.enter(n)
	defer d.leave(before)
	switch {
	case n == nil:
		return "", false
	case n.Kind != yaml.ScalarNode:
		d.problem(n, "is %s: want one value", describe(n))
		return "", false
	case isNull(n):
		d.problem(n, "is empty: give a value or leave the key out")
		return "", false
	case !isCoreTag(n):
		d.problem(n, "has the tag %s: want a plain value", n.Tag)
		return "", false
	}
	return n.Value, true
}

// isKey reports whether k is a plain key, and reports it if not.
func (d *decoder) isKey(k *yaml.Node) bool {
	if k.Kind == yaml.ScalarNode && k.Value != "" && isCoreTag(k) {
		return true
	}
	d.problem(k, "a key is %s: want plain text", describe(k))
	return false
}

// firstKey returns the first place of key in n.
func (d *decoder) firstKey(n *yaml.Node, key string) lab.Pos {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return d.pos(d.spot(n.Content[i]))
		}
	}
	return lab.Pos{}
}

// hasKey reports whether a mapping has a key.
func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

// twice reports a value that an earlier file has set.
func (d *decoder) twice(n *yaml.Node, first spot) {
	d.problem(n, "is defined here and at %s: want it in one file", d.pos(first))
}

// place sets s to the place of n. It reports false, and the error, if a value was there before.
func (s *spot) place(d *decoder, n *yaml.Node) bool {
	if s.set() {
		d.twice(n, *s)
		return false
	}
	*s = d.spot(n)
	return true
}

// aliased returns the node that n is an alias of, or n.
func aliased(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// spot returns the place of n; below an alias, that of the alias.
func (d *decoder) spot(n *yaml.Node) spot {
	if d.alias != nil {
		n = d.alias
	}
	return spot{line: uint32(max(n.Line, 1)), column: uint16(min(max(n.Column, 1), 1<<16-1)), file: d.file}
}

func (d *decoder) pos(s spot) lab.Pos {
	if !s.set() {
		return lab.Pos{}
	}
	return lab.Pos{File: d.files[s.file&^badBit], Line: int(s.line), Column: int(s.column)}
}

func (d *decoder) problem(n *yaml.Node, format string, args ...any) {
	if d.reported[n] {
		return
	}
	d.reported[n] = true
	d.failAt(d.pos(d.spot(n)), d.key(), format, args...)
}

// failAt adds a problem.
func (d *decoder) failAt(pos lab.Pos, key, format string, args ...any) {
	d.problems.Addf(pos, key, format, args...)
	p := d.problems[len(d.problems)-1]
	for _, a := range args {
		if pos, ok := a.(lab.Pos); ok && len(d.unread) > 0 {
			d.named[p] = append(d.named[p], pos)
		}
	}
}

// problemKey reports the value below key k.
func (d *decoder) problemKey(k *yaml.Node, format string, args ...any) {
	d.path = append(d.path, step{k.Value, -1})
	d.problem(k, format, args...)
	d.path = d.path[:len(d.path)-1]
}

// key returns the path of keys that leads to the value at hand.
func (d *decoder) key() string {
	var b strings.Builder
	for _, s := range d.path {
		if s.index >= 0 {
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.key)
	}
	return b.String()
}

func isMerge(k *yaml.Node) bool {
	return k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
}

// isNull reports whether n is an empty value: nothing at all, ~ or null.
func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Style&^yaml.TaggedStyle != 0 {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return n.Tag != "!!str"
	}
	return false
}

// isCoreTag reports whether a scalar has no tag of its own, or one that says what plain YAML would say.
func isCoreTag(n *yaml.Node) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null":
		return true
	}
	return false
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	case n.Kind == yaml.ScalarNode:
		return strconv.Quote(n.Value)
	}
	return "not plain"
}
