package vip_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/lab"
)

// FuzzFrames: no frame of a neighbour does harm, and a claim is always of a single machine's MAC. What this machine sends is read back.
func FuzzFrames(f *testing.F) {
	mac := lab.MAC{2, 0, 0, 0, 0, 1}
	for _, a := range []string{"192.168.16.10", "fd00:16::10", "fe80::1"} {
		addr := netip.MustParseAddr(a)
		f.Add(vip.Probe(mac, addr))
		f.Add(vip.GratuitousARP(mac, addr))
		for _, isProbe := range []bool{true, false} {
			frame, parse := vip.GratuitousARP(mac, addr), vip.ParseND
			if isProbe {
				frame = vip.Probe(mac, addr)
			}
			if addr.Is4() {
				parse = vip.ParseARP
			}
			if got, from, probe, ok := parse(frame); !ok || got != addr || from != mac || probe != isProbe {
				f.Errorf("%s, probe %t: read back as %s of %s, probe %t, %t", a, isProbe, got, lab.MAC(from), probe, ok)
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for name, parse := range map[string]func([]byte) (netip.Addr, [6]byte, bool, bool){"ARP": vip.ParseARP, "ND": vip.ParseND} {
			addr, mac, _, ok := parse(frame)
			switch {
			case !ok:
			case mac == [6]byte{} || mac[0]&1 != 0:
				t.Errorf("%s: a claim by %s", name, lab.MAC(mac))
			case !addr.IsValid() || addr.Is4In6() || addr.Is4() != (name == "ARP"):
				t.Errorf("%s: a claim of %s", name, addr)
			}
		}
	})
}

// TestMalformed: a message of neighbour discovery that RFC 4861 section 7.1 says to discard is no claim.
func TestMalformed(t *testing.T) {
	t.Parallel()
	mac, addr := lab.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("fd00:16::10")
	for kind, good := range map[string][]byte{"solicitation": vip.Probe(mac, addr), "advertisement": vip.GratuitousARP(mac, addr)} {
		for name, change := range map[string]func(frame []byte) []byte{
			"a wrong checksum":         func(f []byte) []byte { f[14+40+2] ^= 1; return f },
			"a changed address":        func(f []byte) []byte { f[14+40+8+15] ^= 1; return f },
			"longer than the frame":    func(f []byte) []byte { f[14+5] += 8; return f },
			"shorter than its message": func(f []byte) []byte { f[14+5] = 16; return f },
			"cut":                      func(f []byte) []byte { return f[:len(f)-1] },
		} {
			if got, _, _, ok := vip.ParseND(change(bytes.Clone(good))); ok {
				t.Errorf("%s, %s: a claim of %s", kind, name, got)
			}
		}
	}
}
