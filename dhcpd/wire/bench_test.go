package wire

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestNoAllocation: neither way costs memory, whatever a client says.
func TestNoAllocation(t *testing.T) {
	packets := captured(t)
	packets["parts"] = overloaded("\x34\x01\x03\x3d\x01a\xff", "\x3d\x01b\xff", "\x35\x01\x03\x3d\x01c\x51\x07\x04\x00\x00\x03abc\xff")
	packets["relay"] = message(t, Discover, ipxe, raw(82, "\x01\x04port\x02\x02sw"), withGIAddr("10.78.0.254"))
	o := network().Build()
	var copied Packet
	kept := make([]byte, 0, maxMessage)
	ip4 := ip("10.77.0.1")
	for who, p := range packets {
		r, out := new(Packet), make([]byte, 0, maxMessage)
		got := testing.AllocsPerRun(100, func() {
			if err := r.Parse(p); err != nil {
				t.Fatal(err)
			}
			kept = r.CopyTo(&copied, kept[:0])
			a := Reply{
				Req: r, Type: Ack, ServerID: ip4, YIAddr: ip4, NextServer: ip4, Lease: time.Hour, Options: o, Name: "master-0", Domain: "lab.test",
				FQDN: "master-0.lab.test", BootFile: "http://10.77.0.1/boot.ipxe", VendorClass: "PXEClient", VendorInfo: "\x06\x01\x08\xff", IPXE: "\xb0\x01\x01",
			}
			a.Append(out)
		})
		if got != 0 {
			t.Errorf("%s: %v allocations", who, got)
		}
	}
}

func benchPackets(b *testing.B) map[string][]byte {
	p := captured(b)
	return map[string][]byte{"perfdhcp": p["perfdhcp-discover"], "ovmf": p["ovmf-discover"], "ipxe": p["ipxe-rom-discover"], "udhcpc": p["udhcpc-discover"]}
}

func BenchmarkCopyTo(b *testing.B) {
	for who, p := range benchPackets(b) {
		b.Run(who, func(b *testing.B) {
			r, kept := parsed(b, p), make([]byte, 0, maxMessage)
			var to Packet
			b.ReportAllocs()
			for b.Loop() {
				r.CopyTo(&to, kept)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for who, p := range benchPackets(b) {
		b.Run(who, func(b *testing.B) {
			r := new(Packet)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Parse(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCodecParse is the codec's, for comparison.
func BenchmarkCodecParse(b *testing.B) {
	for who, p := range benchPackets(b) {
		b.Run(who, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := dhcpv4.FromBytes(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for who, p := range benchPackets(b) {
		b.Run(who, func(b *testing.B) {
			a := answer(b, parsed(b, p))
			if a.Req.Booting() {
				a.BootFile, a.NextServer = "http://10.77.0.1:8080/boot/52-54-00-00-02-01/boot.ipxe", ip("10.77.0.1")
			}
			out := make([]byte, 0, maxMessage)
			b.ReportAllocs()
			for b.Loop() {
				a.Append(out)
			}
		})
	}
}

// BenchmarkOverload is the slow way: three passes.
func BenchmarkOverload(b *testing.B) {
	build3 := network()
	build3.Custom = []lab.Option{{Code: 220, Data: make([]byte, 150)}, {Code: 221, Data: make([]byte, 100)}}
	a := answer(b, parsed(b, message(b, Request, bare)))
	a.Options = build3.Build()
	out := make([]byte, 0, maxMessage)
	b.ReportAllocs()
	for b.Loop() {
		a.Append(out)
	}
}

// BenchmarkCodecAppend writes about the same with the codec.
func BenchmarkCodecAppend(b *testing.B) {
	for who, p := range benchPackets(b) {
		b.Run(who, func(b *testing.B) {
			req, err := dhcpv4.FromBytes(p)
			if err != nil {
				b.Fatal(err)
			}
			a := answer(b, parsed(b, p))
			model := decode(b, a.Append(nil))
			b.ReportAllocs()
			for b.Loop() {
				reply, err := dhcpv4.NewReplyFromRequest(req)
				if err != nil {
					b.Fatal(err)
				}
				for code, v := range model.Options {
					reply.Options[code] = v
				}
				reply.ToBytes()
			}
		})
	}
}
