package leases

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// keyPrefix is where the book lives in the store: one key for each address.
const keyPrefix = "lease/"

// A record in the store is
//
//	version  1 byte, 2
//	state    1 byte
//	MAC      6 bytes
//	start    4 bytes, Unix seconds, big-endian
//	expiry   4 bytes, likewise
//	texts    host name, client id, vendor class, line: each one byte of length, then so many bytes
//
// and nothing after it. There is one way to write a lease, so the bytes made from memory are those in the store, and serve
// as the condition that nobody changed it. Version 1 was JSON, which starts with a brace.
const (
	recordVersion = 2
	headSize      = 16
	textFields    = 4
	maxText       = 255
	maxBlob       = textFields * (1 + maxText)
)

// A stamp is the fixed part of a lease.
type stamp struct {
	mac    lab.MAC
	state  State
	start  uint32
	expiry uint32
}

func leaseKey(a uint32) string {
	buf := make([]byte, 0, len(keyPrefix)+len("255.255.255.255"))
	return string(addrOf(a).AppendTo(append(buf, keyPrefix...)))
}

func parseKey(key string) (uint32, error) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	addr, err := netip.ParseAddr(rest)
	if !ok || err != nil || !addr.Is4() {
		return 0, fmt.Errorf("%w: key %q: want %s<IPv4 address>", ErrRecord, key, keyPrefix)
	}
	a, _ := addr4(addr)
	return a, nil
}

func stampOf(l *Lease) stamp {
	return stamp{mac: l.MAC, state: l.State, start: seconds(l.Start), expiry: seconds(l.Expiry)}
}

func appendStamp(b []byte, s stamp) []byte {
	b = append(b, recordVersion, byte(s.state))
	b = append(b, s.mac[:]...)
	b = binary.BigEndian.AppendUint32(b, s.start)
	return binary.BigEndian.AppendUint32(b, s.expiry)
}

// appendTexts writes the part of a lease that differs in length, its blob.
func appendTexts(b []byte, l *Lease) []byte {
	b = appendText(b, l.Hostname)
	b = appendText(b, l.ClientID)
	b = appendText(b, l.Vendor)
	return appendText(b, l.Line)
}

func appendText[T string | []byte](b []byte, s T) []byte {
	s = s[:min(len(s), maxText)]
	return append(append(b, byte(len(s))), s...)
}

// nextText splits the first text off a blob that was checked.
func nextText(blob []byte) (text, rest []byte) {
	n := 1 + int(blob[0])
	return blob[1:n], blob[n:]
}

// blobSize returns how long the blob at the start of b is, -1 if it is cut short.
func blobSize(b []byte) int {
	n := 0
	for range textFields {
		if n >= len(b) {
			return -1
		}
		n += 1 + int(b[n])
	}
	if n > len(b) {
		return -1
	}
	return n
}

// nameOf returns the host name in a blob; nil blob: none.
func nameOf(blob []byte) []byte {
	if blob == nil {
		return nil
	}
	name, _ := nextText(blob)
	return name
}

// lineOf returns the relay port in a blob, its last text.
func lineOf(blob []byte) (line []byte) {
	for range textFields {
		line, blob = nextText(blob)
	}
	return line
}

// lease puts a lease together. All texts share one allocation, the client id has its own.
func (s stamp) lease(a uint32, blob []byte) Lease {
	l := Lease{Addr: addrOf(a), MAC: s.mac, State: s.state, Start: timeOf(s.start), Expiry: timeOf(s.expiry)}
	if blob == nil {
		return l
	}
	all := string(blob)
	cut := func() (text string) {
		n := 1 + int(all[0])
		text, all = all[1:n], all[n:]
		return text
	}
	l.Hostname = cut()
	if id := cut(); id != "" {
		l.ClientID = []byte(id)
	}
	l.Vendor, l.Line = cut(), cut()
	return l
}

// parseRecord reads what the store has under key. The blob it returns lies inside value or is new. legacy says that the
// record is of version 1 and has other bytes than we would write.
func parseRecord(key string, value []byte) (s stamp, blob []byte, legacy bool, err error) {
	if len(value) > 0 && value[0] == '{' {
		s, blob, err = parseRecord1(key, value)
		return s, blob, true, err
	}
	switch {
	case len(value) > 0 && value[0] != recordVersion:
		return stamp{}, nil, false, fmt.Errorf("%w: %s: version %d, this program knows 1 and %d", ErrRecord, key, value[0], recordVersion)
	case len(value) < headSize || blobSize(value[headSize:]) != len(value)-headSize:
		return stamp{}, nil, false, fmt.Errorf("%w: %s: %d bytes, cut short or too long", ErrRecord, key, len(value))
	}
	s = stamp{
		mac: lab.MAC(value[2:8]), state: State(value[1]),
		start: binary.BigEndian.Uint32(value[8:]), expiry: binary.BigEndian.Uint32(value[12:]),
	}
	if !s.state.stored() {
		return stamp{}, nil, false, fmt.Errorf("%w: %s: %s", ErrRecord, key, s.state)
	}
	return s, value[headSize:], false, nil
}

// stored reports whether leases of that state are in the store.
func (s State) stored() bool { return s == Active || s == Released || s == Declined }

// A record1 is a lease as version 1 stored it.
type record1 struct {
	Version  int     `json:"v"`
	MAC      lab.MAC `json:"mac"`
	State    State   `json:"state"`
	Start    int64   `json:"start"` // Unix seconds
	Expiry   int64   `json:"end"`
	Hostname string  `json:"name,omitempty"`
	ClientID []byte  `json:"id,omitempty"`
	Line     string  `json:"line,omitempty"`
}

func parseRecord1(key string, value []byte) (stamp, []byte, error) {
	var r record1
	d := json.NewDecoder(bytes.NewReader(value))
	if err := d.Decode(&r); err != nil {
		return stamp{}, nil, fmt.Errorf("%w: %s: %w", ErrRecord, key, err)
	}
	switch {
	case r.Version != 1:
		return stamp{}, nil, fmt.Errorf("%w: %s: version %d, this program knows 1 and %d", ErrRecord, key, r.Version, recordVersion)
	case !r.State.stored():
		return stamp{}, nil, fmt.Errorf("%w: %s: %s", ErrRecord, key, r.State)
	}
	s := stamp{mac: r.MAC, state: r.State, start: clampSeconds(r.Start), expiry: clampSeconds(r.Expiry)}
	return s, appendTexts(nil, &Lease{Hostname: r.Hostname, ClientID: r.ClientID, Line: r.Line}), nil
}

func clampSeconds(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// appendRecord1 writes a lease as version 1 did, as the condition for its first change.
func appendRecord1(b []byte, s stamp, blob []byte) []byte {
	name, rest := nextText(blob)
	id, _ := nextText(rest)
	out, err := json.Marshal(record1{
		Version: 1, MAC: s.mac, State: s.state, Start: int64(s.start), Expiry: int64(s.expiry), Hostname: string(name), ClientID: id,
		Line: string(lineOf(blob)),
	})
	if err != nil {
		panic(err) // no field can fail
	}
	return append(b, out...)
}
