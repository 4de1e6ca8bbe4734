package wire

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// testMAC is the client of all packets that the tests build.
func testMAC() lab.MAC { return lab.MAC{0x52, 0x54, 0, 0, 2, 1} }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// A client is how one kind of client fills a packet, as captured.
type client func() []dhcpv4.Modifier

func raw(code uint8, v string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(v)))
}

const uuid17 = "\x00\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff"

const prlOVMF = "\x01\x02\x03\x04\x05\x06\x0c\x0d\x0f\x11\x12\x16\x17\x1c\x28\x29\x2a\x2b\x32\x33\x36\x3a\x3b\x3c\x42\x43\x61\x80\x81\x82\x83\x84\x85\x86\x87"

func ovmf() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true), raw(60, "PXEClient:Arch:00007:UNDI:003000"), raw(93, "\x00\x07"), raw(94, "\x01\x03\x00"),
		raw(97, uuid17), raw(57, "\x05\xc0"), raw(55, prlOVMF),
	}
}

func ovmfHTTP() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true), raw(60, "HTTPClient:Arch:00016:UNDI:003000"), raw(93, "\x00\x10"), raw(94, "\x01\x03\x00"),
		raw(97, uuid17), raw(57, "\x05\xc0"), raw(55, prlOVMF+"\xeb"),
	}
}

func ipxe() []dhcpv4.Modifier {
	m := testMAC()
	return []dhcpv4.Modifier{
		raw(61, "\x01"+string(m[:])), raw(60, "PXEClient:Arch:00000:UNDI:002001"), raw(77, "iPXE"), raw(93, "\x00\x00"),
		raw(94, "\x01\x02\x01"), raw(97, uuid17), raw(57, "\x05\xc0"),
		raw(55, "\x01\x03\x06\x07\x0c\x0f\x11\x1a\x2b\x3c\x42\x43\x77\x80\x81\x82\x83\x84\x85\x86\x87\xaf\xcb"),
		raw(175, "\xb1\x05\x01\x1a\xf4\x10\x00\xeb\x03\x01\x00\x00\x17\x01\x01\x22\x01\x01\x13\x01\x01"),
	}
}

func networkd() []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(61, "\xff\x12\x34\x56\x78\x00\x02\x00\x00\xab\x11\x01\x02\x03\x04\x05\x06\x07\x08"), raw(57, "\x05\xc0"),
		raw(55, "\x01\x03\x06\x0c\x0f\x21\x2a\x78\x79"), raw(12, "Fedora.lab.test"),
	}
}

// bare is a client that says nothing of itself: no list, no size.
func bare() []dhcpv4.Modifier { return nil }

// message builds a packet of a client with the codec.
func message(t testing.TB, kind MessageType, c client, more ...dhcpv4.Modifier) []byte {
	t.Helper()
	m := testMAC()
	mods := []dhcpv4.Modifier{dhcpv4.WithHwAddr(m[:]), dhcpv4.WithMessageType(dhcpv4.MessageType(kind)), func(d *dhcpv4.DHCPv4) {
		d.TransactionID = dhcpv4.TransactionID{0xde, 0xad, 0xbe, 0xef}
	}}
	p, err := dhcpv4.New(append(append(mods, c()...), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p.ToBytes()
}

func withCIAddr(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }
func withGIAddr(a string) dhcpv4.Modifier { return dhcpv4.WithGatewayIP(net.ParseIP(a)) }

// parsed is the request that a client's packet holds.
func parsed(t testing.TB, b []byte) *Packet {
	t.Helper()
	r := new(Packet)
	if err := r.Parse(b); err != nil {
		t.Fatal(err)
	}
	return r
}

// captured returns packets as they were on the wire, by client.
func captured(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/captured.txt")
	if err != nil {
		t.Fatal(err)
	}
	packets := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		if packets[name], err = hex.DecodeString(digits); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(packets) == 0 {
		t.Fatal("no packets")
	}
	return packets
}

// seeds are packets of all kinds for the fuzz targets.
func seeds(t testing.TB) [][]byte {
	var all [][]byte
	for _, p := range captured(t) {
		all = append(all, p)
	}
	for _, c := range []client{ovmf, ovmfHTTP, ipxe, networkd, bare} {
		all = append(all,
			message(t, Discover, c),
			message(t, Request, c, raw(50, "\x0a\x4d\x00\x15"), raw(54, "\x0a\x4d\x00\x01")),
			message(t, Request, c, withCIAddr("10.77.0.21")),
			message(t, Discover, c, withGIAddr("10.78.0.254"), raw(82, "\x01\x04port\x05\x04\x0a\x4e\x00\x00")),
		)
	}
	long := message(t, Inform, bare, raw(77, strings.Repeat("\x04iPXE", 100)), raw(82, strings.Repeat("\x01\x01x", 120)))
	over := overloaded("\x34\x01\x03\x0c\x02ab\xff", "\x35\x01\x01\x0c\x02cd\xff", "\x0c\x02ef\xff")
	all = append(all, long, over, over[:len(over)-1])
	// A relay with every sub-option that means something, one of them cut short; firmware that names its architecture in text.
	relayed := message(t, Discover, ipxe, withGIAddr("10.78.0.254"),
		raw(82, "\x01\x04port\x02\x06switch\x05\x04\x0a\x4e\x00\x00\x0b\x04\x0a\x4e\x00\x01\x13\x00\x05\x09\x0a"), raw(118, "\x0a\x4e\x00\x00"))
	textual := message(t, Discover, bare, raw(60, "PXEClient:Arch:00007:UNDI:003016"), raw(81, "\x04\x00\x00\x02w0\x03lab\x00"))
	all = append(all, relayed, textual)
	for _, change := range []func(b []byte){ // what is refused, each for its own reason
		func(b []byte) { b[0] = 2 }, func(b []byte) { b[2] = 16 }, func(b []byte) { b[3] = 17 }, func(b []byte) { b[optionsAt-1] = 0 },
	} {
		b := bytes.Clone(textual)
		change(b)
		all = append(all, b)
	}
	return all
}

// TestSeeds holds that the fuzzer starts behind the first branches: with packets that are accepted, of every type and with every
// part that is read, and one for each reason to refuse one.
func TestSeeds(t *testing.T) {
	t.Parallel()
	types, errs, parts := map[MessageType]bool{}, map[error]bool{}, map[string]bool{}
	for _, seed := range seeds(t) {
		r := new(Packet)
		if err := r.Parse(seed); err != nil {
			errs[err] = true
			continue
		}
		types[r.Type] = true
		for name, has := range map[string]bool{
			"architecture": r.HasArch, "circuit": len(r.CircuitID) > 0, "remote": len(r.RemoteID) > 0, "link": r.LinkAddr.IsValid(), "server": r.ServerIDOverride.IsValid(),
			"relay port": r.RelayPort, "user class": len(r.UserClass) > 0, "requested": r.Requested.IsValid(), "UUID": len(r.UUID) > 0, "name": len(r.hostname) > 0, "FQDN": len(r.fqdn) > 0,
		} {
			parts[name] = parts[name] || has
		}
	}
	for name, has := range parts {
		if !has {
			t.Errorf("no seed has a %s", name)
		}
	}
	if !types[Discover] || !types[Request] || !types[Inform] || len(errs) < 4 {
		t.Errorf("types %v, refusals %v", types, errs)
	}
}

// overloaded is a packet with these options in the options field, file and sname.
func overloaded(options, file, sname string) []byte {
	b := make([]byte, optionsAt, optionsAt+len(options))
	m := testMAC()
	b[0], b[1], b[2] = opRequest, ethernet, 6
	copy(b[28:], m[:])
	copy(b[snameAt:], sname)
	copy(b[fileAt:], file)
	copy(b[headerSize:], magicCookie)
	return append(b, options...)
}

// decode reads a packet with the codec, and the options that stand in file and sname too, which the codec does not.
func decode(t testing.TB, b []byte) *dhcpv4.DHCPv4 {
	t.Helper()
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		t.Fatalf("no packet to the codec: %v\n%x", err, b)
	}
	if over := p.Options[optOverload]; len(over) == 1 && over[0] < 4 {
		var fields [][]byte
		if over[0]&1 != 0 {
			fields = append(fields, b[fileAt:headerSize])
		}
		if over[0]&2 != 0 {
			fields = append(fields, b[snameAt:fileAt])
		}
		for _, field := range fields {
			// On its own, since FromBytes does not say at which field's end it stopped.
			if err := p.Options.FromBytes(field); err != nil {
				return nil
			}
		}
	}
	return p
}

// order is the codes of a packet's options field as they stand there.
func order(b []byte) (codes []uint8) {
	for b = b[optionsAt:]; len(b) > 1 && b[0] != optEnd; {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		codes = append(codes, b[0])
		b = b[2+int(b[1]):]
	}
	return slices.Compact(codes)
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
