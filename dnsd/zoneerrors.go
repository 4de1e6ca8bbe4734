package dnsd

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// Limits of the errors that are reported of one zone file, and of the bytes that are read for them.
const (
	maxZoneErrors    = 20
	maxZoneErrorText = 16 << 20
)

// fileErrors reports the error of a zone file in the record that begins at that line, and those of the records below: each is replaced
// by one without an error, and the file is read again.
func (p *parser) fileErrors(text, path string, line int, err error) {
	below := 0
	for n := 1; err != nil && line > below && n <= maxZoneErrors && n*len(text) <= maxZoneErrorText+len(text); n++ {
		first, last := recordLines(text, line)
		below = last
		p.zone.brokenFile(placeIn(path, text, first, last, err), strings.TrimPrefix(explain(err), path+": "))
		text = withoutRecord(text, first, last)
		p.dry, p.count, p.include.files = true, 0, nil
		line, err = p.read(text, path)
	}
}

// recordLines returns the first and the last line of the record that begins at that line: parentheses continue it.
func recordLines(text string, line int) (first, last int) {
	lines := strings.SplitAfter(text, "\n")
	first = min(max(line, 1), len(lines))
	open := 0
	for last = first; last < len(lines); last++ {
		content, _, _ := strings.Cut(lines[last-1], ";")
		if open += strings.Count(content, "(") - strings.Count(content, ")"); open <= 0 {
			break
		}
	}
	return first, last
}

// withoutRecord replaces the record of these lines by another, as records below may leave out the owner.
func withoutRecord(text string, first, last int) string {
	lines := strings.SplitAfter(text, "\n")
	for i := first - 1; i < last; i++ {
		lines[i] = "\n"
	}
	lines[first-1] = "@ 60 IN TXT x\n"
	return strings.Join(lines, "")
}

// placeIn returns the place of the word that a parser refuses in a record, or of the record.
func placeIn(path, text string, first, last int, err error) lab.Pos {
	lines := strings.SplitAfter(text, "\n")
	if _, token := parserSays(err); token != "" {
		for i := first; i <= min(last, len(lines)); i++ {
			if at := wordIn(lines[i-1], token); at >= 0 {
				return lab.Pos{File: path, Line: i, Column: at + 1}
			}
		}
	}
	return lab.Pos{File: path, Line: first, Column: 1}
}

// wordIn returns where a word stands in a line, or -1. Either may be any bytes.
func wordIn(line, word string) int {
	for from := 0; ; from++ {
		at := strings.Index(line[from:], word)
		if at < 0 {
			return -1
		}
		from += at
		before, behind := line[:from], line[from+len(word):]
		if (before == "" || strings.ContainsRune(" \t\r(\"", rune(before[len(before)-1]))) && (behind == "" || strings.ContainsRune(" \t\r\n)\";", rune(behind[0]))) {
			return from
		}
	}
}

var parseError = regexp.MustCompile(`^((?s:.*)): ("(?:[^"\\]|\\.)*")$`)

// parserSays splits an error of the parser into what it says and the word that it says it of; empty: of none.
func parserSays(err error) (text, token string) {
	text = strings.TrimPrefix(err.Error(), "dns: ")
	if i := strings.LastIndex(text, " at line: "); i >= 0 {
		text = text[:i]
	}
	m := parseError.FindStringSubmatch(text)
	if m == nil {
		return text, ""
	}
	token, quoted := strconv.Unquote(m[2])
	if quoted != nil {
		return text, ""
	}
	return m[1], token
}

// explain returns what a parser says in the words of a zone file, without the place in the text, which the problem has.
func explain(err error) string {
	reason, token := parserSays(err)
	in, said := "", reason // an included file is named first
	if i := strings.LastIndex(reason, ": dns: "); i >= 0 {
		in, said = reason[:i]+": ", reason[i+len(": dns: "):]
	}
	if strings.Contains(said, "$INCLUDE directive not allowed") {
		return "$INCLUDE is allowed in zone files only"
	}
	if said == reason && token == "" {
		return reason
	}
	return in + plainly(said, token)
}

var badField = regexp.MustCompile(`^bad (\S+) (.+)$`)

// plainly says why a word cannot be where it is.
func plainly(said, token string) string {
	switch said {
	case "bad A A":
		return fmt.Sprintf("%q is not an IPv4 address", token)
	case "bad AAAA AAAA":
		return fmt.Sprintf("%q is not an IPv6 address", token)
	case "bad owner name", "bad origin name":
		return fmt.Sprintf("%q is not a DNS name", token)
	case "not a TTL", "unknown RR type", "expecting RR type, TTL or class, not this...", "expecting RR type or class, not this...", "expecting RR type or TTL, not this...":
		return notType(token)
	case "expecting $TTL value, not this...":
		return fmt.Sprintf("%q is not a TTL: want seconds or units, as in $TTL 1h", token)
	case "garbage after rdata":
		return fmt.Sprintf("%q is more than the record can hold: is a ; missing before a comment, or quotes around a text?", token)
	case "unexpected newline":
		return "the line ends before the record does"
	case "bad SOA zone parameter":
		return fmt.Sprintf("%q is not a number of the SOA: want serial, refresh, retry, expire and minimum", token)
	case "bad MX Pref":
		return fmt.Sprintf("%q is not the preference of an MX record: want a number before the name, as in MX 10 mail", token)
	case "bad SRV Priority", "bad SRV Weight", "bad SRV Port":
		return fmt.Sprintf("%q is not a number of an SRV record: want priority, weight, port and target, as in SRV 0 10 2380 etcd-0", token)
	}
	m := badField.FindStringSubmatch(said)
	switch {
	case m == nil && token == "":
		return said
	case m == nil:
		return fmt.Sprintf("%s: %q", said, token)
	case slices.Contains([]string{"Ns", "Ptr", "Mx", "Target", "Mbox", "Host"}, m[2]):
		return fmt.Sprintf("%q is not a DNS name", token)
	}
	return fmt.Sprintf("%q is not the %s of a %s record", token, strings.ToLower(m[2]), m[1])
}

// notType explains a word where a type is expected: the parser takes it for a TTL that is wrong.
func notType(token string) string {
	if _, ok := dns.StringToType[strings.ToUpper(token)]; ok {
		return fmt.Sprintf("there is nothing after %s: want the record's data", token)
	}
	common := []string{"A", "AAAA", "CAA", "CNAME", "DNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT", "HTTPS", "SVCB", "NAPTR", "SSHFP", "TLSA"}
	if near := lab.Nearest(token, common); near != "" && !strings.ContainsAny(token, ".:") {
		return fmt.Sprintf("%q is not a type of record: did you mean %s?", token, near)
	}
	return fmt.Sprintf("%q is neither a TTL nor a type of record: want NAME TYPE DATA, as in www A 10.0.0.1", token)
}
