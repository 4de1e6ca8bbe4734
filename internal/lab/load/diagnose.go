package load

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A mistake is what is probably wrong in a text that is not YAML, and where: the parser notices it later, often lines below.
type mistake struct {
	line, column int // from 1
	reason       string
	repaired     string // the line as it was probably meant, with its end; empty: not known
}

// A repair is a way in which a line may have been meant.
type repair struct {
	line   string // the whole line
	column int    // of the mistake, from 1
	reason string
}

// Limits of diagnose for one file: the bytes that it parses, about a second, how often, and the longest line that a person wrote.
const (
	maxDiagnosed = 8 << 20
	maxRepairs   = 300
	maxLine      = 500
)

// An effort is what is left of these limits for one file.
type effort struct{ bytes, repairs int }

// diagnose looks for the line that keeps data from being YAML. It repairs one line in a way that people get wrong, and parses again: a
// repair is the answer if there is no error any more, or at least none in the lines above and around the first one, which the
// parser reported at that line.
func (d *effort) diagnose(data []byte, reported int) (mistake, bool) {
	lines := strings.SplitAfter(string(data), "\n")
	reported = min(max(reported, 1), len(lines))
	if m, ok := indentedByTab(lines[:reported]); ok {
		return m, true
	}
	errorAfter := func(i int, repaired string) int { // the line of the next error; 0: none
		d.repairs--
		if d.bytes -= len(data); d.bytes < 0 {
			return i
		}
		text := strings.Join(lines[:i], "") + repaired + strings.Join(lines[i+1:], "")
		_, err := oneDocument([]byte(text))
		if err == nil {
			return 0
		}
		line, _, _ := yamlReason(err)
		return max(line, 1)
	}
	var moved mistake
	best := bestRepair{problems: -1}
	for _, repairs := range [...]func([]string, int) []repair{rewritten, indented} {
		for i := reported - 1; i >= 0 && d.bytes > 0 && d.repairs > 0 && !best.enough(); i-- {
			if len(lines[i]) > maxLine {
				continue
			}
			for _, r := range repairs(lines, i) {
				next := errorAfter(i, r.line)
				m := mistake{i + 1, r.column, r.reason, r.line}
				if next == 0 && best.add(m, withLine(data, i+1, r.line)) {
					return m, true
				}
				if moved.line == 0 && next > reported+1 {
					moved = m
				}
			}
		}
	}
	if best.problems >= 0 {
		return best.mistake, true
	}
	return moved, moved.line > 0
}

// maxBest is how many repairs that make a file YAML are compared.
const maxBest = 12

// A bestRepair is the one that leaves the fewest problems of those that make a file YAML: the wrong line, or the wrong indentation, puts keys
// where they are not known.
type bestRepair struct {
	mistake
	problems int // negative: there is none
	tried    int
}

func (b *bestRepair) enough() bool { return b.tried >= maxBest }

// add compares a repair, and reports whether it leaves no problem.
func (b *bestRepair) add(m mistake, repaired []byte) bool {
	b.tried++
	d := newDecoder()
	d.decodeFile("", repaired, new(rawLab))
	if n := len(d.problems); b.problems < 0 || n < b.problems {
		b.mistake, b.problems = m, n
	}
	return b.problems == 0
}

// withLine returns data with another text of one line; lines count from 1.
func withLine(data []byte, line int, text string) []byte {
	lines := strings.SplitAfter(string(data), "\n")
	lines[line-1] = text
	return []byte(strings.Join(lines, ""))
}

// topLevel matches a line that begins an entry of the top level.
var topLevel = regexp.MustCompile(`^[^\s#]`)

// withoutEntry returns data with empty lines instead of the top-level entry that holds a line; lines count from 1.
func withoutEntry(data []byte, line int) []byte {
	lines := strings.SplitAfter(string(data), "\n")
	from := min(line, len(lines)) - 1
	for from > 0 && !topLevel.MatchString(lines[from]) {
		from--
	}
	for i := from; i < len(lines) && (i == from || !topLevel.MatchString(lines[i])); i++ {
		lines[i] = "\n"
	}
	return []byte(strings.Join(lines, ""))
}

func indentedByTab(lines []string) (mistake, bool) {
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && strings.TrimSpace(line) != "" {
			return mistake{i + 1, tab + 1, "a tab in the indentation: want spaces", ""}, true
		}
	}
	return mistake{}, false
}

// A shape is a kind of line that people write, and what they mean.
type shape struct {
	line  *regexp.Regexp // what follows the indentation and the "- " of lists
	meant string         // in terms of its groups
	at    int            // the group at whose end the mistake is; 0: at the start of the line, negative: at the start of that group
	why   string         // in terms of its groups; followed by what is meant
}

// special are the characters that no value begins with outside of quotes.
const special = "%@`*&!|>"

const keyWord = `([A-Za-z0-9_][\w./-]*)`

// shapes are tried in this order.
var shapes = []shape{
	{regexp.MustCompile(`^([A-Za-z_][\w-]*):([^\s:/].*)$`), `$1: $2`, 1, "a space is missing after the colon of $1"},
	{regexp.MustCompile(`^` + keyWord + `\s*[=;]\s*(\S.*)$`), `$1: $2`, 1, "a colon is missing after $1"},
	{regexp.MustCompile(`^` + keyWord + `(?:\s+#.*)?$`), `$1:`, 1, "a colon is missing after $1"},
	{regexp.MustCompile(`^` + keyWord + `:\s+(\{\}|\[\])(?:\s+#.*)?$`), `$1:`, -2, "$1 is empty, and has entries in the lines below"},
	{regexp.MustCompile(`^` + keyWord + `\s+([^\s#].*)$`), `$1: $2`, 1, "a colon is missing after $1"},
	{regexp.MustCompile(`^(-)(\S.*)$`), `$1 $2`, 1, "a space is missing after -"},
	{regexp.MustCompile(`^` + keyWord + `:\s+(\{\{[^"]*?)(\s+#.*)?$`), `$1: "$2"`, -2, "a value that begins with {{ needs quotes"},
	{regexp.MustCompile(`^` + keyWord + `:\s+([%@` + "`" + `*&!|>][^"]*?)(\s+#.*)?$`), `$1: "$2"`, -2, "a value that begins with such a character needs quotes"},
	{regexp.MustCompile(`^` + keyWord + `:\s+([^"'\[{#][^"]*: [^"]*?)(\s+#.*)?$`), `$1: "$2"`, -2, `a value with ": " in it needs quotes`},
	{regexp.MustCompile(`^` + keyWord + `:\s+(\[\s*[%@` + "`" + `*][^"\[\]]*\])(\s+#.*)?$`), ``, -2, ""},
}

// rewritten returns the repairs of line i that leave its indentation as it is.
func rewritten(lines []string, i int) (all []repair) {
	body := strings.TrimRight(lines[i], "\r\n")
	end := lines[i][len(body):]
	text := strings.TrimLeft(body, " ")
	for strings.HasPrefix(text, "- ") {
		text = strings.TrimLeft(text[2:], " ")
	}
	start := len(body) - len(text)
	text = strings.TrimRight(text, " ")
	if text == "" || text[0] == '#' {
		return nil
	}
	for _, s := range shapes {
		m := s.line.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}
		meant, why := s.line.ReplaceAllString(text, s.meant), s.line.ReplaceAllString(text, s.why)
		if s.meant == "" {
			meant, why = quotedItems(text), "an item that begins with such a character needs quotes"
		}
		if s.at == -2 {
			if i := strings.IndexAny(text[m[4]:], special); i >= 0 {
				why = strings.ReplaceAll(why, "such a character", text[m[4]+i:m[4]+i+1])
			}
		}
		at := m[1]
		switch {
		case s.at > 0:
			at = m[2*s.at+1]
		case s.at < 0:
			at = m[-2*s.at]
		}
		all = append(all, repair{body[:start] + meant + end, start + at + 1, fmt.Sprintf("%s: want %s", why, lab.Shortened(meant, maxShown))})
	}
	all = append(all, closed(body, end)...)
	if lacksDash(lines, i) {
		all = append(all, repair{body[:start] + "- " + body[start:] + end, start + 1, fmt.Sprintf("an item of a list begins with - and a space: want - %s", lab.Shortened(text, maxShown))})
	}
	return all
}

// lacksDash reports whether line i may be an item of a list without its dash: the first line below its key, or one with the indentation of an
// item above.
func lacksDash(lines []string, i int) bool {
	if opensBlock.MatchString(lines[i]) {
		return false
	}
	own := indentOf(lines[i])
	for _, above := range slices.Backward(lines[:i]) {
		text := strings.TrimSpace(above)
		switch indent := indentOf(above); {
		case text == "" || text[0] == '#' || indent > own:
		case indent < own:
			return opensBlock.MatchString(above)
		default:
			return strings.HasPrefix(text, "- ")
		}
	}
	return false
}

// maxShown bounds how much of a value an error repeats, in bytes.
const maxShown = 100

var flowItem = regexp.MustCompile(`[\[,]\s*[^\[\],]+`)

// quotedItems puts quotes around the items of a list in brackets.
func quotedItems(text string) string {
	return flowItem.ReplaceAllStringFunc(text, func(item string) string {
		value := strings.TrimSpace(item[1:])
		return item[:strings.Index(item, value)] + `"` + value + `"`
	})
}

// closed returns the repairs of a line whose quotes or brackets do not match.
func closed(body, end string) (all []repair) {
	var open []int // columns of brackets, from 0
	quote := -1
	for i := range len(body) {
		c := body[i]
		switch {
		case quote >= 0:
			if c == body[quote] && (c == '\'' || body[i-1] != '\\') {
				quote = -1
			}
		case (c == '"' || c == '\'') && i > 0 && strings.IndexByte(" [{,", body[i-1]) >= 0:
			quote = i
		case c == '#' && (i == 0 || body[i-1] == ' '):
			body, end = strings.TrimRight(body[:i], " "), body[i:]+end
			return append(all, unmatched(body, " "+end, open, quote)...)
		case c == '[' || c == '{':
			open = append(open, i)
		case c == ']' || c == '}':
			if len(open) == 0 {
				return []repair{{body[:i] + body[i+1:] + end, i + 1, fmt.Sprintf("%c closes nothing: want it gone, or its opening bracket", c)}}
			}
			open = open[:len(open)-1]
		}
	}
	return unmatched(body, end, open, quote)
}

// closer returns the bracket that closes an opening one.
func closer(open byte) string { return string(open + 2) }

func unmatched(body, end string, open []int, quote int) (all []repair) {
	if quote >= 0 {
		for at := len(body); at > quote+1; at-- {
			if at < len(body) && strings.IndexByte(",]}", body[at]) < 0 {
				continue
			}
			all = append(all, repair{body[:at] + body[quote:quote+1] + body[at:] + end, quote + 1, fmt.Sprintf("the quote %c is not closed: want another at its end", body[quote])})
		}
		return all
	}
	if len(open) == 0 {
		return nil
	}
	tail := ""
	for _, at := range slices.Backward(open) {
		tail += closer(body[at])
	}
	last := open[len(open)-1]
	comma := strings.TrimRight(body, ", ")
	reason := fmt.Sprintf("%c is not closed: want %s at the end of the list", body[last], closer(body[last]))
	if body[last] == '{' {
		reason = "{ is not closed: want } behind the last value"
	}
	return []repair{{comma + tail + end, last + 1, reason}, {comma + tail + body[len(comma):] + end, last + 1, reason}}
}

// opensBlock matches a key whose value is in the lines below.
var opensBlock = regexp.MustCompile(`^[^#]*:(\s+&\S+)?\s*(#.*)?\s*$`)

// indented returns the repairs of line i that give it the indentation of a line around it.
func indented(lines []string, i int) (all []repair) {
	if !hasText(lines[i]) {
		return nil
	}
	text, own := strings.TrimLeft(lines[i], " "), indentOf(lines[i])
	above, under := textAround(lines, i)
	below := 0 // the indentation of what belongs to the line; 0: nothing does
	if len(under) > 0 && opensBlock.MatchString(text) && indentOf(lines[under[0]]) > own {
		below = indentOf(lines[under[0]])
	}
	var near []int // the next lines first
	for k := range 5 {
		near = append(near, above[min(k, len(above)):min(k+1, len(above))]...)
		if k < 2 {
			near = append(near, under[min(k, len(under)):min(k+1, len(under))]...)
		}
	}
	first := func(of []int, is func(indent int) bool) {
		if k := slices.IndexFunc(of, func(j int) bool { return is(indentOf(lines[j])) }); k >= 0 {
			near = append(near, of[k])
		}
	}
	first(above, func(indent int) bool { return indent < own }) // the entry that the line is in
	if below > 0 {                                              // the entries before and behind it
		sibling := func(indent int) bool { return indent < below && indent != own }
		first(above, sibling)
		first(under, sibling)
	}
	seen := []int{own}
	for _, j := range near {
		indent := indentOf(lines[j])
		if slices.Contains(seen, indent) || below > 0 && indent >= below {
			continue
		}
		seen = append(seen, indent)
		all = append(all, repair{strings.Repeat(" ", indent) + text, own + 1, fmt.Sprintf("indented by %s: want %d, as line %d", lab.Plural(own, "space"), indent, j+1)})
	}
	return all
}

// hasText reports whether a line has more than a comment.
func hasText(line string) bool {
	text := strings.TrimSpace(line)
	return text != "" && text[0] != '#'
}

// textAround returns the lines above and under line i that have more than a comment, the nearest first.
func textAround(lines []string, i int) (above, under []int) {
	for j := range lines {
		switch {
		case j == i || !hasText(lines[j]):
		case j < i:
			above = append(above, j)
		default:
			under = append(under, j)
		}
	}
	slices.Reverse(above)
	return above, under
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// plainReasons say in words of the file what the parser says in words of YAML's grammar.
var plainReasons = []struct{ from, to string }{
	{"mapping values are not allowed", "a colon is not possible here: is one missing in the line above, is the indentation wrong, or does a value need quotes?"},
	{"could not find expected ':'", "a colon is missing here or in the line above"},
	{"did not find expected key", "a key is expected here: check the indentation, and the quotes and brackets of the lines above"},
	{"did not find expected ',' or '}'", "a comma or } is expected here: is one missing in this line or the one above, or does a value need quotes?"},
	{"did not find expected ',' or ']'", "a comma or ] is expected here: is one missing in this line or the one above, or does a value need quotes?"},
	{"did not find expected '-' indicator", "an item of the list above is expected here: want - in front, with the same indentation, or fewer spaces"},
	{"found character that cannot start any token", "a value cannot begin with this character without quotes, and YAML is indented with spaces, not tabs"},
	{"found unexpected end of stream", "the file ends inside a quoted value: a quote is not closed"},
	{"did not find expected alphabetic or numeric character", "* and & are followed by a name: want quotes around a value that begins with them"},
	{"control characters are not allowed", "the file has control characters: want plain text in UTF-8"},
}

// plainly returns a reason of the YAML parser for people who do not know its grammar.
func plainly(reason string) string {
	for _, p := range plainReasons {
		if strings.HasPrefix(reason, p.from) {
			return p.to
		}
	}
	return reason
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.+)' referenced$`)

// anchorReason explains an alias without an anchor.
func anchorReason(data []byte, reason string) (string, bool) {
	m := unknownAnchor.FindStringSubmatch(reason)
	if m == nil {
		return "", false
	}
	var names []string
	for _, a := range anchors.FindAllSubmatch(data, -1) {
		names = append(names, string(bytes.Clone(a[1])))
	}
	if hint := didYouMean(m[1], names); hint != "" {
		return fmt.Sprintf("*%s repeats the value that has &%[1]s in front, and none has%s", m[1], hint), true
	}
	return fmt.Sprintf("*%s repeats the value that has &%[1]s in front, and none above has: want quotes around it if it is meant as text", m[1]), true
}

var anchors = regexp.MustCompile(`[\s,\[{]&([\w-]+)`)
