package leases

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// KeyPrefix is the prefix of the keys in the store, one for each address.
const KeyPrefix = "lease/"

// A record in the store is
//
//	version  1 byte, 1
//	state    1 byte; 0x80 is added while the machine is unverified: see verified.go
//	MAC      6 bytes
//	start    4 bytes, Unix seconds, big-endian
//	expiry   4 bytes, likewise
//	texts    host name, client id, vendor class, relay port: each one byte of length, then so many bytes
//
// and nothing after it. A host name that is no DNS name (Lease.Unnamed) has a hyphen before it, with which no host name begins. A new version
// needs a new one of the store, too: see package logfile. There is one way to write a lease, so the bytes made from memory are those in the
// store, and serve as the condition that it has not changed.
const (
	recordVersion = 1
	headSize      = 16
	textFields    = 4
	maxText       = 255
	unnamed       = "-"  // before a host name
	unverifiedBit = 0x80 // of the state
)

// A stamp is the fixed part of a lease.
type stamp struct {
	mac    lab.MAC
	state  State
	start  uint32
	expiry uint32

	unverified bool
}

func leaseKey(a uint32) string {
	buf := make([]byte, 0, len(KeyPrefix)+len("255.255.255.255"))
	return string(addrOf(a).AppendTo(append(buf, KeyPrefix...)))
}

func parseKey(key string) (uint32, error) {
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	addr, err := netip.ParseAddr(rest)
	if !ok || err != nil || !addr.Is4() {
		return 0, fmt.Errorf("%w: key %q: want %s<IPv4 address>", ErrRecord, key, KeyPrefix)
	}
	a, _ := addr4(addr)
	return a, nil
}

func stampOf(l *Lease) stamp {
	return stamp{mac: l.MAC, state: l.State, start: seconds(l.Start), expiry: seconds(l.Expiry)}
}

func appendStamp(b []byte, s stamp) []byte {
	state := byte(s.state)
	if s.unverified {
		state |= unverifiedBit
	}
	b = append(b, recordVersion, state)
	b = append(b, s.mac[:]...)
	b = binary.BigEndian.AppendUint32(b, s.start)
	return binary.BigEndian.AppendUint32(b, s.expiry)
}

// appendTexts writes the part of a lease that differs in length, its blob.
func appendTexts(b []byte, l *Lease) []byte {
	if l.Unnamed && l.Hostname != "" {
		b = appendText(b, unnamed+l.Hostname)
	} else {
		b = appendText(b, l.Hostname)
	}
	b = appendText(b, l.ClientID)
	b = appendText(b, l.Vendor)
	return appendText(b, l.RelayPort)
}

func appendText[T string | []byte](b []byte, s T) []byte {
	s = s[:min(len(s), maxText)]
	return append(append(b, byte(len(s))), s...)
}

// nextText splits the first text off a blob that was checked.
func nextText(blob string) (text, rest string) {
	n := 1 + int(blob[0])
	return blob[1:n], blob[n:]
}

// isBlob reports whether b is just the texts of a lease.
func isBlob(b []byte) bool {
	for range textFields {
		if len(b) == 0 || 1+int(b[0]) > len(b) {
			return false
		}
		b = b[1+int(b[0]):]
	}
	return len(b) == 0
}

// nameOf returns the host name in a blob, and whether it is a DNS name; no blob: none.
func nameOf(blob string) (name string, inDNS bool) {
	if blob == "" {
		return "", false
	}
	text, _ := nextText(blob)
	name, hidden := strings.CutPrefix(text, unnamed)
	return name, !hidden && name != ""
}

// relayPortOf returns the relay port in a blob, its last text.
func relayPortOf(blob string) (port string) {
	for range textFields {
		port, blob = nextText(blob)
	}
	return port
}

// lease puts a lease together.
func (s stamp) lease(a uint32, blob string) Lease {
	l := s.brief(a, blob)
	if blob != "" {
		_, blob = nextText(blob)
		if id, _ := nextText(blob); id != "" {
			l.ClientID = []byte(id)
		}
	}
	return l
}

// brief puts a lease without its ClientID together, and allocates nothing: its texts are parts of blob.
func (s stamp) brief(a uint32, blob string) Lease {
	l := Lease{Addr: addrOf(a), MAC: s.mac, State: s.state, Start: timeOf(s.start), Expiry: timeOf(s.expiry)}
	if blob == "" {
		return l
	}
	l.Hostname, blob = nextText(blob)
	l.Hostname, l.Unnamed = strings.CutPrefix(l.Hostname, unnamed)
	_, blob = nextText(blob)
	l.Vendor, blob = nextText(blob)
	l.RelayPort, _ = nextText(blob)
	return l
}

// parseRecord parses the record of key.
func parseRecord(key string, value []byte) (s stamp, blob string, err error) {
	switch {
	case len(value) > 0 && value[0] != recordVersion:
		return s, "", fmt.Errorf("%w: %s: version %d, this program knows %d", ErrRecord, key, value[0], recordVersion)
	case len(value) < headSize || !isBlob(value[headSize:]):
		return s, "", fmt.Errorf("%w: %s: %d bytes, cut short or too long", ErrRecord, key, len(value))
	}
	s = stamp{
		mac: lab.MAC(value[2:8]), state: State(value[1] &^ unverifiedBit), unverified: value[1]&unverifiedBit != 0,
		start: binary.BigEndian.Uint32(value[8:]), expiry: binary.BigEndian.Uint32(value[12:]),
	}
	if !s.state.stored() || s.unverified && s.state == Declined {
		return s, "", fmt.Errorf("%w: %s: %s", ErrRecord, key, State(value[1]))
	}
	return s, string(value[headSize:]), nil
}

// ParseRecord reads one record of the store, for those who look at a store that no Book has open. The error is ErrRecord; ok is
// false for the key of something else.
func ParseRecord(key string, value []byte) (l Lease, ok bool, err error) {
	if !strings.HasPrefix(key, KeyPrefix) {
		return Lease{}, false, nil
	}
	a, err := parseKey(key)
	if err != nil {
		return Lease{}, true, err
	}
	s, blob, err := parseRecord(key, value)
	if err != nil {
		return Lease{}, true, err
	}
	return s.lease(a, blob), true, nil
}
