package nd_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/nd"
	"github.com/bootlab/bootlab/internal/lab"
)

var (
	ours, theirs  = lab.MAC{2, 0, 0, 0, 0, 1}, lab.MAC{2, 0, 0, 0, 0, 0x10}
	source, asked = netip.MustParseAddr("fd00:78::1"), netip.MustParseAddr("fd00:78::12:3456")
)

// TestSolicitation: the frame is that of RFC 4861 section 4.3, whomever it is sent to.
func TestSolicitation(t *testing.T) {
	t.Parallel()
	const rest = "020000000001" + "86dd" +
		"6000000000203aff" + "fd000078000000000000000000000001" + "ff0200000000000000000001ff123456" +
		"8700" + "13db" + "00000000" + "fd000078000000000000000000123456" + "0101020000000001"
	for to, want := range map[lab.MAC]string{nd.Multicast(asked): "3333ff123456" + rest, theirs: "020000000010" + rest} {
		if got := hex.EncodeToString(nd.Solicitation(ours, source, to, asked)); got != want {
			t.Errorf("to %s:\n%s, want\n%s", to, got, want)
		}
	}
}

// advertisement is an answer to Solicitation, with the checksum that belongs to it.
const advertisement = "020000000001" + "020000000010" + "86dd" +
	"6000000000203aff" + "fd000078000000000000000000123456" + "fd000078000000000000000000000001" +
	"8800" + "b257" + "60000000" + "fd000078000000000000000000123456" + "0201020000000010"

func frame(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseAdvertisement(t *testing.T) {
	t.Parallel()
	good := frame(t, advertisement)
	for _, f := range [][]byte{good, append(bytes.Clone(good), 0, 0, 0, 0)} { // with what pads it
		if target, mac, ok := nd.ParseAdvertisement(f); !ok || target != asked || mac != theirs {
			t.Errorf("%s, %s, %t", target, mac, ok)
		}
	}
	for i := range good { // no byte of it is without meaning, but the Ethernet header, traffic class and flow label
		bad := bytes.Clone(good)
		bad[i] ^= 0xff
		_, _, ok := nd.ParseAdvertisement(bad)
		if want := i < 12 || i > 14 && i < 18; ok != want {
			t.Errorf("byte %d inverted: %t", i, ok)
		}
		if _, _, ok := nd.ParseAdvertisement(good[:i]); ok {
			t.Errorf("cut to %d bytes: taken", i)
		}
	}
}

// TestProbe: a probe and an announcement are read back as what they are, and as nothing else.
func TestProbe(t *testing.T) {
	t.Parallel()
	const probe = "3333ff123456" + "020000000001" + "86dd" +
		"60000000" + "0018" + "3aff" + "00000000000000000000000000000000" + "ff0200000000000000000001ff123456" +
		"8700" + "145f" + "00000000" + "fd000078000000000000000000123456"
	const announced = "333300000001" + "020000000001" + "86dd" +
		"60000000" + "0020" + "3aff" + "fd000078000000000000000000123456" + "ff020000000000000000000000000001" +
		"8800" + "f0dc" + "20000000" + "fd000078000000000000000000123456" + "0201020000000001"
	for want, got := range map[string][]byte{probe: nd.Solicitation(ours, netip.Addr{}, nd.Multicast(asked), asked), announced: nd.Announcement(ours, asked)} {
		if hex.EncodeToString(got) != want {
			t.Errorf("%x, want\n%s", got, want)
		}
		target, mac, ok := nd.ParseProbe(got)
		if ok != (want == probe) || ok && (target != asked || mac != ours) {
			t.Errorf("probe: %s, %s, %t", target, mac, ok)
		}
		target, mac, ok = nd.ParseAdvertisement(got)
		if ok != (want == announced) || ok && (target != asked || mac != ours) {
			t.Errorf("announcement: %s, %s, %t", target, mac, ok)
		}
	}
}

// FuzzParse: what is returned stands in the frame, and is the address and the MAC of one machine. An advertisement may name no MAC.
func FuzzParse(f *testing.F) {
	f.Add(frame(f, advertisement))
	f.Add(nd.Solicitation(ours, source, theirs, asked))
	f.Add(nd.Solicitation(ours, netip.Addr{}, theirs, asked))
	f.Fuzz(func(t *testing.T, b []byte) {
		for mayLack, parse := range map[bool]func([]byte) (netip.Addr, lab.MAC, bool){true: nd.ParseAdvertisement, false: nd.ParseProbe} {
			target, mac, ok := parse(b)
			if !ok {
				continue
			}
			a := target.As16()
			if !bytes.Contains(b, a[:]) || target.IsMulticast() || target.IsUnspecified() {
				t.Errorf("%s of %x", target, b)
			}
			if !bytes.Contains(b, mac[:]) && !mac.IsZero() || mac.IsZero() && !mayLack || mac[0]&1 != 0 {
				t.Errorf("%s of %x", mac, b)
			}
		}
	})
}

// FuzzSolicitation: no address leads to a frame of another size, and none is taken for an advertisement.
func FuzzSolicitation(f *testing.F) {
	f.Add(make([]byte, 16), make([]byte, 16))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		source, ok1 := netip.AddrFromSlice(from)
		target, ok2 := netip.AddrFromSlice(to)
		if !ok1 || !ok2 {
			return
		}
		got := nd.Solicitation(ours, source, nd.Multicast(target), target)
		if _, _, ok := nd.ParseAdvertisement(got); ok || len(got) != 86 {
			t.Errorf("%x", got)
		}
	})
}
