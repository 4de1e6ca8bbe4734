package load

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A textual value is read from the text of one YAML scalar, however YAML itself would type that text: an unquoted
// 52:54:00:00:02:01, off or 1 is taken as it is written.
type textual interface {
	// parse sets the value from text. Its error names the text and what would be right.
	parse(text string) error
	// spec describes the texts that parse accepts, for the JSON Schema.
	spec() spec
}

// A spec is the JSON Schema of a textual value.
type spec map[string]any

// what returns a spec of any text that fits pattern (a regular expression, empty: anything).
func what(description, pattern string) spec {
	s := spec{"type": []string{"string", "number"}, "description": description}
	if pattern != "" {
		s["pattern"] = pattern
	}
	return s
}

const (
	namePattern   = `^[A-Za-z0-9][A-Za-z0-9._-]*$`
	domainPattern = `^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$`
	ipv4Pattern   = `^[0-9]{1,3}(\.[0-9]{1,3}){3}$`
	macByte       = `([0-9A-Fa-f]{2}|\*)`
	macPattern    = `^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$`
)

// A text is any text that is not empty.
type text string

func (t *text) parse(s string) error {
	if s == "" {
		return fmt.Errorf("is empty: give a value or leave the key out")
	}
	*t = text(s)
	return nil
}

func (text) spec() spec { return what("text", "") }

// An ident is the name of a network, profile, pool, hypervisor, balancer or role.
type ident string

func (v *ident) parse(s string) error {
	if !lab.IsName(s) {
		return fmt.Errorf("%q is not a name: want letters, digits, '.', '_' and '-', beginning with a letter or digit", s)
	}
	*v = ident(s)
	return nil
}

func (ident) spec() spec { return what("name", namePattern) }

// isLabels reports whether s is host-name labels with dots between.
func isLabels(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !lab.IsLabel(label) {
			return false
		}
	}
	return len(s) <= 200
}

// A domain is a DNS name in lower case; "*." in front and a final dot are kept.
type domain string

func (v *domain) parse(s string) error {
	if err := checkDomain(s); err != nil {
		return err
	}
	*v = domain(strings.ToLower(s))
	return nil
}

func (domain) spec() spec { return what("DNS name", domainPattern) }

// A webHost is what a browser may call this appliance: a DNS name or an address, without a port.
type webHost string

func (v *webHost) parse(s string) error {
	if a, err := netip.ParseAddr(s); err == nil {
		*v = webHost(a.Unmap().WithZone("").String())
		return nil
	}
	if strings.HasPrefix(s, "*.") || checkDomain(s) != nil {
		return fmt.Errorf("%q is neither a DNS name nor an address: want one like lab.example.com or 10.0.0.7, without a port", s)
	}
	*v = webHost(strings.TrimSuffix(strings.ToLower(s), "."))
	return nil
}

func (webHost) spec() spec { return what("DNS name or address", `^[0-9A-Za-z:._-]+$`) }

// checkDomain accepts labels of letters, digits, '-' and '_'; RFC 2181 section 11 allows more, which is never intended.
func checkDomain(s string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(s, "*."), ".")
	if len(name) > lab.MaxDomain {
		return fmt.Errorf("%q is too long for a DNS name: want at most 253 characters", s)
	}
	if !lab.IsDomain(name) {
		return fmt.Errorf("%q is not a DNS name: want labels of letters, digits and '-' with dots between, like lab.example.com", s)
	}
	return nil
}

// checkZone accepts what checkDomain does, the root, and labels with '/', as reverse zones of parts of a /24 have them (RFC 2317).
func checkZone(s string) error {
	if s == "." {
		return nil
	}
	return checkDomain(strings.ReplaceAll(s, "/", "x"))
}

// A count is a whole number that is not negative.
type count int

func (v *count) parse(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		if n, _, _ := strings.Cut(s, " "); n != s && new(count).parse(n) == nil {
			return fmt.Errorf("%q is not a number: did you mean %s?", s, n)
		}
		return fmt.Errorf("%q is not a number: want a whole number like 2", s)
	}
	*v = count(n)
	return nil
}

func (count) spec() spec {
	return spec{"type": []string{"integer", "string"}, "minimum": 0, "maximum": math.MaxInt32, "pattern": "^[0-9]+$", "description": "whole number"}
}

// A version is that of the format.
type version struct{}

func (*version) parse(s string) error {
	if n := count(0); n.parse(s) != nil || n != 1 {
		return fmt.Errorf("%q is not a version of the lab file that this bootlab reads: want 1", s)
	}
	return nil
}

func (version) spec() spec { return count(0).spec() }

// A port is a TCP or UDP port.
type port uint16

func (v *port) parse(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port: want 1 to 65535", s)
	}
	*v = port(n)
	return nil
}

func (port) spec() spec {
	return spec{"type": []string{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": "^[0-9]+$", "description": "port"}
}

// A flag is true or false.
type flag bool

func (v *flag) parse(s string) error {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		*v = true
	case "false", "no", "off":
		*v = false
	default:
		return fmt.Errorf("%q is neither true nor false", s)
	}
	return nil
}

func (flag) spec() spec {
	return spec{"type": []string{"boolean", "string"}, "pattern": "^([Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[Oo]n|[Oo]ff|TRUE|FALSE|YES|NO|ON|OFF)$", "description": "true or false"}
}

// A span is a duration of at least one millisecond.
type span time.Duration

func (v *span) parse(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration: %s", s, meantSpan(s))
	case d <= 0:
		return fmt.Errorf("%q is too short: want more than 0", s)
	case d < time.Millisecond:
		return fmt.Errorf("%q is too short: want 1ms or more", s)
	}
	*v = span(d)
	return nil
}

// meantSpan says what would be right instead of a text that is not a duration: a bare number is seconds, as in dhcpd.conf,
// or milliseconds, as in haproxy.cfg.
func meantSpan(s string) string {
	number := strings.TrimRight(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz ")
	n, err := strconv.ParseUint(number, 10, 31)
	unit, known := spanUnits[strings.TrimSuffix(strings.TrimSpace(strings.ToLower(s[len(number):])), "s")]
	switch {
	case err != nil || n == 0 || !known:
		return "want a number and a unit, like 30s, 5m or 12h"
	case number == s && n < 60:
		return fmt.Sprintf("want a unit too, as in %ds, %[1]dm or %[1]dh", n)
	}
	seconds, millis := lab.DurationText(time.Duration(n)*unit), lab.DurationText(time.Duration(n)*time.Millisecond)
	likelyMillis := n%1000 == 0 && n%3600 != 0 || n >= 100 && n%60 != 0 // as in haproxy.cfg; 300 and 43200 are rather seconds
	switch {
	case number == s && likelyMillis && n < 1000:
		return fmt.Sprintf("did you mean %s or %s?", millis, seconds)
	case number == s && likelyMillis:
		return fmt.Sprintf("did you mean %s, which is %sms, or %s?", millis, number, seconds)
	}
	return fmt.Sprintf("did you mean %s?", seconds)
}

// spanUnits are units as people write them, without a final s.
var spanUnits = map[string]time.Duration{
	"": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "w": 168 * time.Hour, "week": 168 * time.Hour,
}

func (span) spec() spec {
	return what("duration, such as 30s, 5m or 12h", `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`)
}

// A limit is a duration, or never, which is 0.
type limit time.Duration

func (v *limit) parse(s string) error {
	var d span
	if s == "never" {
		*v = 0
		return nil
	}
	if err := d.parse(s); err != nil || time.Duration(d) < time.Minute {
		return fmt.Errorf("%q is not a time-out: want 1m or more, such as 2h, or never", s)
	}
	*v = limit(d)
	return nil
}

func (limit) spec() spec {
	return what("duration of 1m or more, such as 2h, or never", `^(never|[0-9.hms]+)$`)
}

// A patience is a duration, or off, which is lab.SilenceOff.
type patience time.Duration

func (v *patience) parse(s string) error {
	var d span
	if s == "off" {
		*v = patience(lab.SilenceOff)
		return nil
	}
	if err := d.parse(s); err != nil {
		return fmt.Errorf("%q is no time for an answer: want a duration such as 2s, or off", s)
	}
	*v = patience(d)
	return nil
}

func (patience) spec() spec { return what("duration such as 2s, or off", `^(off|[0-9.hmsuµn]+)$`) }

// A hardware is the MAC address of a NIC.
type hardware struct{ lab.MAC }

func (v *hardware) parse(s string) (err error) {
	if v.MAC, err = lab.ParseMAC(s); err != nil {
		return err
	}
	switch {
	case v.IsZero():
		return fmt.Errorf("%q is not the MAC address of a machine", s)
	case v.MAC[0]&1 != 0:
		return fmt.Errorf("%q is a multicast address: want a machine's, whose first byte is even", s)
	}
	return nil
}

func (hardware) spec() spec { return what("MAC address", macPattern) }

func macPatternSpec() spec {
	return what("MAC pattern, such as 52:54:00:*:*:* or 52:54:00:00:00:00/24", `^(`+macByte+`(:`+macByte+`){5}|`+macByte+`(-`+macByte+`){5}|[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}/[0-9]{1,2})$`)
}

func patternSpec() spec {
	return what(`pattern, such as eth0/7, sw-7* (* matches any text) or hex:0001ff`, `^(hex:[0-9A-Fa-f: ]+|text:[\s\S]+|[\s\S]+)$`)
}

func archSpec() spec {
	return what("architecture by name or number, such as uefi-arm64 or 11", `^(`+strings.Join(lab.ArchNames(), "|")+`|[0-9]{1,5})$`)
}

func sizeSpec() spec { return what("size, such as 512MiB or 42GiB", `^[0-9]+([KMGTP]i?)?B$`) }

// A macAlgorithm is an algorithm of TSIG.
type macAlgorithm string

// A webURL is an http or https URL.
type webURL string

func (v *webURL) parse(s string) error {
	if !lab.IsWeb(s) {
		return fmt.Errorf("%q is not a URL of a web server: want http://HOST/PATH or https://HOST/PATH", s)
	}
	*v = webURL(s)
	return nil
}

func (webURL) spec() spec { return what("URL", `^https?://.+$`) }

// A controller is a host, or host:port, that speaks IPMI.
type controller string

func (v *controller) parse(s string) error {
	host := s
	if h, number, ok := cutPort(s); ok {
		host = h
		var p port
		if err := p.parse(number); err != nil {
			return err
		}
	}
	if _, err := netip.ParseAddr(host); err != nil && (checkDomain(host) != nil || strings.HasPrefix(host, "*")) {
		return fmt.Errorf("%q is not the address of a controller: want one like 10.0.9.21, or host:port", s)
	}
	*v = controller(s)
	return nil
}

func (controller) spec() spec { return what("address, or host:port", `^[0-9A-Za-z._:\[\]-]+$`) }

// A backendAddr is host:port of a backend; port is empty where it has none.
type backendAddr struct{ host, port string }

func (v *backendAddr) parse(s string) error {
	inner, bracketed := strings.CutPrefix(s, "[")
	if inner, ok := strings.CutSuffix(inner, "]"); ok && bracketed {
		a, err := netip.ParseAddr(inner)
		if v.host = a.String(); err == nil {
			return nil
		}
	}
	if !strings.Contains(s, ":") && isLabels(strings.TrimSuffix(s, ".")) {
		v.host = s
		return nil
	}
	host, number, ok := cutPort(s)
	var p port
	if !ok || host == "" || p.parse(number) != nil {
		return fmt.Errorf("%q is not a backend: want host:port like worker-0:80 or 10.0.0.7:80", s)
	}
	v.host, v.port = host, number
	return nil
}

func (backendAddr) spec() spec { return what("backend, host:port or host", `^.+$`) }

// A statuses is an HTTP status or a range of them.
type statuses string

func (v *statuses) parse(s string) error {
	if len(s) == 3 && s[0] >= '1' && s[0] <= '5' && strings.EqualFold(s[1:], "xx") {
		return fmt.Errorf("%q is not an HTTP status: did you mean %c00-%[2]c99?", s, s[0])
	}
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	low, err := strconv.ParseUint(from, 10, 16)
	high, err2 := strconv.ParseUint(to, 10, 16)
	switch {
	case err != nil || err2 != nil || low < 100 || high > 599:
		return fmt.Errorf("%q is not an HTTP status: want one like 200, or a range like 300-302", s)
	case low > high:
		return fmt.Errorf("%q is not a range: want the lower status first", s)
	}
	*v = statuses(s)
	return nil
}

func (statuses) spec() spec {
	return spec{"type": []string{"integer", "string"}, "minimum": 100, "maximum": 599, "pattern": "^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$", "description": "HTTP status or range"}
}

// A hostField is the value of an HTTP Host field.
type hostField string

func (v *hostField) parse(s string) error {
	if s == "" || strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("/?#@,", c)
	}) {
		return fmt.Errorf("%q is not a host: want one like www.example.com or www.example.com:8080", s)
	}
	*v = hostField(s)
	return nil
}

func (hostField) spec() spec { return what("host", `^[^/?#@, ]+$`) }

// A digest is a SHA-256 in lower case.
type digest string

func (v *digest) parse(s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 32 {
		return fmt.Errorf("%q is not a SHA-256: want 64 hexadecimal digits", s)
	}
	*v = digest(strings.ToLower(s))
	return nil
}

func (digest) spec() spec { return what("SHA-256, 64 hexadecimal digits", `^[0-9A-Fa-f]{64}$`) }
