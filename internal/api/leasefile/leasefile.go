package leasefile

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Format is the format of a lease file.
type Format string

// The formats.
const (
	CSV     Format = "csv"
	JSON    Format = "json"
	Kea     Format = "kea"
	Dnsmasq Format = "dnsmasq"
)

// Formats returns all formats.
func Formats() []Format { return []Format{CSV, JSON, Kea, Dnsmasq} }

// MaxSize bounds a file, in bytes.
const MaxSize = 256 << 20

// A File is what a lease file holds.
type File struct {
	Leases []api.Lease // by their order in the file; an active one has Expires or Never
	// Skipped are lines that are no lease of an IPv4 address and an Ethernet MAC.
	Skipped []api.SkippedLease
}

// errFormat is returned for a file that is in no known format.
var errFormat = errors.New("it is in no format that bootlab knows; --format names one of csv, json, kea, dnsmasq")

// errISC is returned for the lease file of ISC dhcpd.
var errISC = errors.New("it is a lease file of ISC dhcpd, which is not imported: machines that are on keep their addresses when they renew, and a pool probes an address " +
	"before it offers it to another; for those that are off, write a CSV file with the columns ip, mac, hostname and expires, and import that")

// isISC reports whether a file begins as one of ISC dhcpd.
func isISC(head string) bool {
	for line := range strings.Lines(head) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0, strings.HasPrefix(fields[0], "#") && !strings.Contains(line, "dhcpd.leases"):
			continue
		}
		return fields[0] == "authoring-byte-order" || fields[0] == "server-duid" || fields[0] == "lease" && strings.Contains(line, "{") || strings.Contains(line, "dhcpd.leases(5)")
	}
	return false
}

// byteOrderMark begins files that spreadsheets save as UTF-8.
const byteOrderMark = "\ufeff"

// plain returns a file without what some spreadsheets put before it: a byte order mark, and a line that names the separator.
func plain(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if line := firstLine(data); len(strings.TrimRight(line, "\r")) == len("sep=;") && strings.HasPrefix(line, "sep=") {
		data = data[len(line):] // the empty line that is left counts
	}
	return data
}

func firstLine(data []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(data[:min(len(data), 4096)], "\r\n"), []byte("\n"))
	return string(line)
}

// Detect returns the format of a file, or an error that says that it is not known.
func Detect(data []byte) (Format, error) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return "", errors.New("it is UTF-16: save it as CSV in UTF-8")
	}
	data = plain(data)
	head := strings.TrimLeft(string(data[:min(len(data), 4096)]), " \t\r\n")
	line, _, _ := strings.Cut(head, "\n")
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return "", errors.New("it is empty")
	case strings.HasPrefix(line, "["):
		return JSON, nil
	case strings.HasPrefix(line, "address,"):
		return Kea, nil
	case separatorOf(line) != 0:
		return CSV, nil
	case fields[0] == "duid", len(fields) == 5 && isNumber(fields[0]):
		return Dnsmasq, nil
	case isISC(head):
		return "", errISC
	}
	return "", errFormat
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Parse reads a lease file. An error names the line that is not what the format wants; nothing of the file counts then.
func Parse(data []byte, f Format) (*File, error) {
	data = plain(data)
	switch f {
	case CSV:
		return parseCSV(data)
	case JSON:
		return parseJSON(data)
	case Kea:
		return parseKea(data)
	case Dnsmasq:
		return parseDnsmasq(data)
	}
	return nil, fmt.Errorf("%q is not a format of lease files: want one of %v", f, Formats())
}

// Options say how leases are written.
type Options struct {
	// SubnetIDs are the ids that Kea's configuration gives the subnets, by the name of the network here.
	SubnetIDs map[string]int
}

// Write writes leases. What a format cannot express is left out: Kea and dnsmasq know nothing of vendor classes and relay ports,
// dnsmasq only leases that hold an address. The caller passes active leases only, unless the format is CSV or JSON.
func Write(w io.Writer, f Format, leases []api.Lease, o Options) error {
	switch f {
	case CSV:
		return writeCSV(w, leases)
	case JSON:
		return writeJSON(w, leases)
	case Kea:
		return writeKea(w, leases, o)
	case Dnsmasq:
		return writeDnsmasq(w, leases)
	}
	return fmt.Errorf("%q is not a format of lease files: want one of %v", f, Formats())
}

// skip returns a line that is no lease of IPv4 and Ethernet.
func skip(addr netip.Addr, format string, args ...any) api.SkippedLease {
	return api.SkippedLease{IP: addr, Kind: api.SkipNoEthernet, Reason: fmt.Sprintf(format, args...)}
}

// endpoints parses an IPv4 address and an Ethernet MAC. notOurs says why a valid line is skipped.
func endpoints(ip, mac string) (addr netip.Addr, m lab.MAC, notOurs *api.SkippedLease, err error) {
	addr, err = netip.ParseAddr(ip)
	if err != nil {
		return addr, m, nil, fmt.Errorf("%.60q is not an address", ip)
	}
	if addr = addr.Unmap(); !addr.Is4() {
		s := skip(addr.WithZone(""), "not an IPv4 address")
		return addr, m, &s, nil
	}
	m, err = lab.ParseMAC(mac)
	if err == nil && m.IsZero() {
		mac = ""
	}
	if mac == "" {
		s := skip(addr, "no MAC")
		return addr, m, &s, nil
	}
	if err != nil && strings.Trim(mac, "0123456789abcdefABCDEF:-") == "" {
		s := skip(addr, "hardware address %.80s is not of Ethernet", mac)
		return addr, m, &s, nil
	}
	return addr, m, nil, err
}

// clientID parses hexadecimal bytes with colons, and returns them in one spelling; empty: none.
func clientID(s string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(b) > 255 {
		return "", fmt.Errorf("client id %.60q is not up to 255 hexadecimal bytes", s)
	}
	return ClientID(b), nil
}

// ClientID writes a client id (option 61): "01:52:54:00:2c:01:10".
func ClientID(b []byte) string {
	text := make([]byte, 0, 3*len(b))
	for i, c := range b {
		if i > 0 {
			text = append(text, ':')
		}
		text = hex.AppendEncode(text, []byte{c})
	}
	return string(text)
}

// unix returns the time of a lease; for 0 none.
func unix(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// maxTime is the last second of the times here: DHCP's own are of 32 bits.
const maxTime = 1<<32 - 1

func parseJSON(data []byte) (*File, error) {
	f, d := &File{}, json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("not a list of leases")
	}
	for d.More() {
		at := d.InputOffset()
		var l api.Lease
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("line %d: not a list of leases: %w", lineOf(data, at), err)
		}
		_, _, notOurs, err := endpoints(l.IP.String(), l.MAC.String())
		if err == nil && notOurs == nil {
			err = normalize(&l, `a time such as "2026-11-22T15:04:05Z", or "never": true`)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", lineOf(data, at), err)
		case notOurs != nil:
			f.Skipped = append(f.Skipped, *notOurs)
		default:
			f.Leases = append(f.Leases, l)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("line %d: not a list of leases: %w", lineOf(data, d.InputOffset()), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the list of leases")
	}
	return f, nil
}

// lineOf returns the number of the line in which the next value of JSON stands.
func lineOf(data []byte, at int64) int {
	next := len(data) - len(bytes.TrimLeft(data[at:], " \t\r\n,"))
	return 1 + bytes.Count(data[:next], []byte("\n"))
}

// normalize gives a lease of a file of ours the spelling that Write has. An active one has an end, or says that it has none: ends is what it
// may say.
func normalize(l *api.Lease, ends string) (err error) {
	l.IP = l.IP.Unmap()
	if l.ClientID, err = clientID(l.ClientID); err != nil {
		return err
	}
	if l.State != "" && !known(l.State) {
		return fmt.Errorf("%.60q is not the state of a lease", l.State)
	}
	for _, t := range []*time.Time{&l.Since, &l.Expires} {
		if t.IsZero() {
			*t = time.Time{}
			continue
		}
		if *t = t.UTC().Truncate(time.Second); t.Unix() < 0 || t.Unix() > maxTime {
			return fmt.Errorf("%s is no time between 1970 and 2106", t.Format(time.RFC3339))
		}
	}
	switch {
	case l.Never && !l.Expires.IsZero():
		return errors.New("there are expires and never: want one of them")
	case l.Status() == api.LeaseActive && !l.Never && l.Expires.IsZero():
		return errors.New("there is no expires: want " + ends)
	}
	return nil
}

func known(s api.LeaseState) bool {
	for _, k := range api.LeaseStates() {
		if s == k {
			return true
		}
	}
	return false
}

func writeJSON(w io.Writer, leases []api.Lease) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if leases == nil {
		leases = []api.Lease{}
	}
	return enc.Encode(leases)
}
