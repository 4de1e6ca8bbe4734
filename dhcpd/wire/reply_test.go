package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// network is what most tests answer from.
func network() Builder {
	return Builder{
		Subnet: netip.MustParsePrefix("10.77.0.0/24"), Router: ip("10.77.0.254"), DNS: []netip.Addr{ip("10.77.0.1")},
		NTP: []netip.Addr{ip("10.77.0.1")}, MTU: 9000, Search: []string{"c1.lab.test", "lab.test"},
		Routes: []lab.Route{{To: netip.MustParsePrefix("10.0.0.0/19"), Via: ip("10.77.0.101")}},
	}
}

// answer is an acknowledgement with everything there is.
func answer(t testing.TB, r *Packet) *Reply {
	return &Reply{
		Req: r, Type: Ack, ServerID: ip("10.77.0.1"), YIAddr: ip("10.77.0.21"), Lease: time.Hour,
		Options: network().Build(), Name: "master-0", Domain: "c1.lab.test", FQDN: "master-0.c1.lab.test",
	}
}

// TestOrder: options 53, 54, 51, 58 and 59 first, 82 last (RFC 3046 section 2.2), the client's order between (RFC 2132
// section 9.8).
func TestOrder(t *testing.T) {
	t.Parallel()
	agent := raw(82, "\x01\x04port")
	for _, tc := range []struct {
		name string
		who  client
		edit func(*Reply)
		want []uint8
	}{
		{"system", networkd, nil, []uint8{53, 54, 51, 58, 59, 61, 1, 3, 6, 12, 15, 42, 121, 28, 82}},
		{"no list: all but what must be asked for", bare, nil, []uint8{53, 54, 51, 58, 59, 1, 3, 6, 28, 121, 249, 26, 42, 119, 12, 15, 82}},
		{"firmware", ovmf, func(a *Reply) {
			a.BootFile, a.VendorClass, a.VendorInfo, a.NextServer = "ipxe.efi", "PXEClient", "\x06\x01\x08\xff", ip("10.77.0.1")
		},
			[]uint8{53, 54, 51, 58, 59, 60, 43, 67, 66, 97, 1, 3, 6, 12, 15, 28, 42, 93, 94, 82}},
		{"iPXE", ipxe, func(a *Reply) { a.BootFile, a.IPXE = "http://10.77.0.1/x", "\xb0\x01\x01" },
			[]uint8{53, 54, 51, 58, 59, 67, 175, 61, 97, 1, 3, 6, 12, 15, 26, 119, 93, 94, 82}},
		{"proxy", ovmf, func(a *Reply) {
			a.Options, a.Lease = nil, 0
			a.VendorClass, a.VendorInfo = "PXEClient", "\x06\x01\x08\xff"
		}, []uint8{53, 54, 60, 43, 97, 93, 94, 82}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := answer(t, parsed(t, message(t, Request, tc.who, agent)))
			if tc.edit != nil {
				tc.edit(a)
			}
			out := a.Append(nil)
			if diff := cmp.Diff(fmt.Sprint(tc.want), fmt.Sprint(order(out))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a.Omitted.Len() > 0 {
				t.Errorf("left out: %s", a.Omitted)
			}
		})
	}
}

// TestHeader: RFC 2131 table 3, and section 4.3.2 for refusals through a relay.
func TestHeader(t *testing.T) {
	t.Parallel()
	relayed := withGIAddr("10.78.0.254")
	for _, tc := range []struct {
		name string
		kind MessageType
		req  []byte
		want string
	}{
		{"offer: no ciaddr", Offer, message(t, Discover, bare, withCIAddr("10.77.0.21")), "flags 0000 ciaddr 0.0.0.0 yiaddr 10.77.0.21 siaddr 10.77.0.1 giaddr 0.0.0.0 file \"f\""},
		{"acknowledgement: ciaddr of the request", Ack, message(t, Request, bare, withCIAddr("10.77.0.21")), "flags 0000 ciaddr 10.77.0.21 yiaddr 10.77.0.21 siaddr 10.77.0.1 giaddr 0.0.0.0 file \"f\""},
		{"to inform: no yiaddr", Ack, message(t, Inform, bare, withCIAddr("10.77.0.77")), "flags 0000 ciaddr 10.77.0.77 yiaddr 0.0.0.0 siaddr 10.77.0.1 giaddr 0.0.0.0 file \"f\""},
		{"flags and giaddr come back", Offer, message(t, Discover, bare, relayed, dhcpv4.WithBroadcast(true)), "flags 8000 ciaddr 0.0.0.0 yiaddr 10.77.0.21 siaddr 10.77.0.1 giaddr 10.78.0.254 file \"f\""},
		{"refusal: nothing", Nak, message(t, Request, bare, withCIAddr("10.77.0.21")), "flags 0000 ciaddr 0.0.0.0 yiaddr 0.0.0.0 siaddr 0.0.0.0 giaddr 0.0.0.0 file \"\""},
		{"refusal through a relay: to be broadcast", Nak, message(t, Request, bare, relayed), "flags 8000 ciaddr 0.0.0.0 yiaddr 0.0.0.0 siaddr 0.0.0.0 giaddr 10.78.0.254 file \"\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := answer(t, parsed(t, tc.req))
			a.Type, a.BootFile, a.NextServer = tc.kind, "f", ip("10.77.0.1")
			p := decode(t, a.Append(nil))
			got := fmt.Sprintf("flags %04x ciaddr %s yiaddr %s siaddr %s giaddr %s file %q", p.Flags, p.ClientIPAddr, p.YourIPAddr, p.ServerIPAddr, p.GatewayIPAddr, p.BootFileName)
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if p.TransactionID != [4]byte{0xde, 0xad, 0xbe, 0xef} || p.ClientHWAddr.String() != testMAC().String() || p.HopCount != 0 || p.NumSeconds != 0 {
				t.Errorf("header %s", p.Summary())
			}
		})
	}
}

// TestSplit: a value that is longer than what is left of the message, and than each field of the header, goes over all of
// them (RFC 3396 section 5) as long as it fits as a whole.
func TestSplit(t *testing.T) {
	t.Parallel()
	fitted := 0
	for n := 150; n <= 560; n++ {
		b := network()
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i)
		}
		b.Custom = []lab.Option{{Code: 230, Data: want}}
		a := answer(t, parsed(t, message(t, Request, bare, raw(55, "\x01\xe6"), raw(57, "\x02\x40"))))
		a.Options = b.Build()
		out := a.Append(nil)
		if len(out) > minDatagram-udpOverhead {
			t.Fatalf("%d bytes for a client that takes %d", len(out), minDatagram-udpOverhead)
		}
		got := joined(out, 230)
		switch {
		case a.Omitted.Has(230) && len(got) == 0:
		case bytes.Equal(got, want) && !a.Omitted.Has(230):
			fitted = n
		default:
			t.Fatalf("of %d bytes the client reads %d", n, len(got))
		}
	}
	if fitted < 350 {
		t.Errorf("the longest value that fitted has %d bytes: the header's fields are not used", fitted)
	}
}

// joined puts the parts of an option together as RFC 3396 section 7 says: the options, then file, then sname.
func joined(message []byte, code uint8) (value []byte) {
	over := byte(0)
	read := func(b []byte) {
		for len(b) > 1 && b[0] != optEnd {
			if b[0] == optPad {
				b = b[1:]
				continue
			}
			v := b[2 : 2+int(b[1])]
			if b[0] == code {
				value = append(value, v...)
			}
			if b[0] == optOverload {
				over = v[0]
			}
			b = b[2+len(v):]
		}
	}
	read(message[optionsAt:])
	if over&1 != 0 {
		read(message[fileAt:headerSize])
	}
	if over&2 != 0 {
		read(message[snameAt:fileAt])
	}
	return value
}

// TestNak: options of a refusal (RFC 2131 table 3, RFC 6842, RFC 3046).
func TestNak(t *testing.T) {
	t.Parallel()
	a := answer(t, parsed(t, message(t, Request, ipxe, raw(82, "\x01\x01x"), raw(81, "\x01\x00\x00a"))))
	a.Type, a.Message, a.VendorClass, a.BootFile, a.IPXE = Nak, "not here", "PXEClient", "f", "x"
	if got, want := fmt.Sprint(order(a.Append(nil))), "[53 54 61 56 82]"; got != want {
		t.Errorf("options %s, want %s", got, want)
	}
}

// TestLease: RFC 2131 section 4.4.5 (T1, T2), 3.3 (for ever), 4.3.5 (Inform).
func TestLease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		kind  MessageType
		lease time.Duration
		want  string
	}{
		{"an hour", Request, time.Hour, "[0 0 14 16] [0 0 7 8] [0 0 12 78]"},
		{"none", Request, 0, "[] [] []"},
		{"one second less than for ever", Request, (math.MaxUint32 - 1) * time.Second, "[255 255 255 254] [127 255 255 255] [223 255 255 254]"},
		{"for ever", Request, math.MaxInt64, "[255 255 255 255] [] []"},
		{"inform", Inform, time.Hour, "[] [] []"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := answer(t, parsed(t, message(t, tc.kind, bare)))
			a.Lease = tc.lease
			p := decode(t, a.Append(nil))
			if got := fmt.Sprint(p.Options[51], p.Options[58], p.Options[59]); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestSends: the table of who gets what, see the package's documentation.
func TestSends(t *testing.T) {
	t.Parallel()
	custom := []lab.Option{
		{Code: 108, Data: []byte{0, 0, 7, 8}, Force: true}, {Code: 114, Data: []byte("http://portal")}, {Code: 120, Data: []byte{1, 10, 0, 0, 1}},
		{Code: 209, Data: []byte("conf")}, {Code: 210, Data: []byte("pre/")}, {Code: 128, Data: []byte("x")}, {Code: 200, Data: []byte("forced"), Force: true},
	}
	always := []uint8{53, 54, 51, 58, 59, 1, 3, 6, 209, 210, 128, 200}
	for _, tc := range []struct {
		name string
		who  client
		list string
		want []uint8 // beside always
	}{
		{"system that lists nothing of it", bare, "\x02", []uint8{28, 121, 12, 15}},
		{"system without a list", bare, "", []uint8{28, 121, 249, 26, 42, 119, 114, 120, 12, 15}},
		{"system that lists all", bare, "\x6c\x72\x78\x1a\x2a\x77\xf9\x79", []uint8{108, 114, 120, 26, 42, 119, 249, 121, 28, 12, 15}},
		{"firmware that lists nothing of it", ovmf, "\x02", []uint8{93, 94}},
		{"firmware that lists all", ovmf, "\x6c\x72\x78\x1a\x2a\x77\xf9\x79\x0c\x0f\x1c", []uint8{114, 120, 26, 42, 119, 249, 121, 12, 15, 28, 93, 94}},
		{"the same twice", bare, "\x1a\x1a\x0c\x1a\x01\x01", []uint8{26, 12, 28, 121, 15}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := parsed(t, message(t, Request, tc.who))
			r.ParamList, r.UUID, r.MaxSize = []byte(tc.list), nil, 1500
			a := answer(t, r)
			b := network()
			b.Custom = custom
			a.Options = b.Build()
			if diff := cmp.Diff(fmt.Sprint(slices.Concat(always, tc.want)), fmt.Sprint(order(a.Append(nil)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEchoes: what a client says and hears again.
func TestEchoes(t *testing.T) {
	t.Parallel()
	agent := "\x01\x04port\x05" // cut short, and yet as it came
	for _, tc := range []struct {
		name string
		who  client
		code uint8
		want string
	}{
		{"RFC 6842: client identifier", networkd, 61, "\xff\x12\x34\x56\x78\x00\x02\x00\x00\xab\x11\x01\x02\x03\x04\x05\x06\x07\x08"},
		{"RFC 4578: UUID", ovmf, 97, uuid17},
		{"RFC 4578: architecture", ovmf, 93, "\x00\x07"},
		{"RFC 4578: architecture, of a system", networkd, 93, ""},
		{"RFC 4578: network interface", ovmf, 94, "\x01\x03\x00"},
		{"RFC 4578: UUID, none", networkd, 97, ""},
		{"RFC 3046: relay information", ovmf, 82, agent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []MessageType{Offer, Ack} {
				a := answer(t, parsed(t, message(t, Request, tc.who, raw(82, agent))))
				a.Type = kind
				if got := string(decode(t, a.Append(nil)).Options[tc.code]); got != tc.want {
					t.Errorf("%s: got %q, want %q", kind, got, tc.want)
				}
			}
		})
	}
}

// TestBootFile: in the header and in option 67, which a NUL follows.
func TestBootFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128)
	custom := func(s string) *Options { return Builder{Custom: []lab.Option{{Code: 67, Data: []byte(s)}}}.Build() }
	for _, tc := range []struct {
		name           string
		who            client
		file           string
		options        *Options
		header, option string
	}{
		{"fits", ovmf, "ipxe.efi", nil, "ipxe.efi", "ipxe.efi"},
		{"127 bytes", ovmf, long[1:], nil, long[1:], long[1:]},
		{"too long for the header", ovmf, long, nil, "", long},
		{"RFC 3396: too long for one option", ovmf, long + long, nil, "", long + long},
		{"the author's", ovmf, "ours", custom("theirs\x00"), "theirs", "theirs\x00"},
		{"the author's, to a system", bare, "", custom("http://theirs"), "", "http://theirs"},
		{"none", ovmf, "", nil, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := Reply{Req: parsed(t, message(t, Discover, tc.who)), Type: Offer, BootFile: tc.file, Options: tc.options}
			out := a.Append(nil)
			p := decode(t, out)
			if p.BootFileName != tc.header || string(p.Options[67]) != tc.option {
				t.Errorf("header %q, option 67 %q; want %q and %q", p.BootFileName, p.Options[67], tc.header, tc.option)
			}
			if tc.option == "" {
				return
			}
			last := tc.option[len(tc.option)-len(tc.option)%255:] // of its parts
			if i := bytes.LastIndex(out, []byte(last)); out[i+len(last)] != 0 {
				t.Error("no NUL behind option 67: old EFI firmware reads on into the next option")
			}
		})
	}
}

// TestNextServer: an address in a custom option 66 is the next server too, of machines that boot nothing from here.
func TestNextServer(t *testing.T) {
	t.Parallel()
	custom := func(s string) *Options { return Builder{Custom: []lab.Option{{Code: 66, Data: []byte(s)}}}.Build() }
	ours := netip.MustParseAddr("192.168.16.1")
	for _, tc := range []struct {
		name    string
		next    netip.Addr
		options *Options
		want    string
	}{
		{"none", netip.Addr{}, nil, "0.0.0.0"},
		{"the author's", netip.Addr{}, custom("192.168.16.9"), "192.168.16.9"},
		{"the author's, as a C string", netip.Addr{}, custom("192.168.16.9\x00"), "192.168.16.9"},
		{"a name", netip.Addr{}, custom("pxe.example"), "0.0.0.0"},
		{"not IPv4", netip.Addr{}, custom("fd00::9"), "0.0.0.0"},
		{"ours, which serves the boot file", ours, custom("192.168.16.9"), "192.168.16.1"},
	} {
		a := Reply{Req: parsed(t, message(t, Discover, ovmf)), Type: Offer, NextServer: tc.next, Options: tc.options}
		if got := decode(t, a.Append(nil)).ServerIPAddr.String(); got != tc.want {
			t.Errorf("%s: next server %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestBootOptions: 43 and 60 go together, and what the author wrote stays.
func TestBootOptions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		custom []lab.Option
		list   string
		want   string
	}{
		{"ours", nil, "", `60="PXEClient" 43="43" 66="10.77.0.1" 150="" 175="175"`},
		{"RFC 5859: option 150 to who lists it", nil, "\x96", `60="PXEClient" 43="43" 66="10.77.0.1" 150="\nM\x00\x01" 175="175"`},
		{"author's 60", []lab.Option{{Code: 60, Data: []byte("a")}}, "", `60="a" 43="" 66="10.77.0.1" 150="" 175="175"`},
		{"author's 43", []lab.Option{{Code: 43, Data: []byte("a")}}, "", `60="" 43="a" 66="10.77.0.1" 150="" 175="175"`},
		{"author's 66, 150, 175", []lab.Option{{Code: 66, Data: []byte("a")}, {Code: 150, Data: []byte("b")}, {Code: 175, Data: []byte("c")}}, "\x96", `60="PXEClient" 43="43" 66="a" 150="b" 175="c"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := parsed(t, message(t, Discover, ovmf))
			r.ParamList = []byte(tc.list)
			a := Reply{Req: r, Type: Offer, NextServer: ip("10.77.0.1"), VendorClass: "PXEClient", VendorInfo: "43", IPXE: "175", Options: Builder{Custom: tc.custom}.Build()}
			o := decode(t, a.Append(nil)).Options
			if got := fmt.Sprintf("60=%q 43=%q 66=%q 150=%q 175=%q", o[60], o[43], o[66], o[150], o[175]); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestFQDN: RFC 4702 section 4. This server keeps the names itself.
func TestFQDN(t *testing.T) {
	t.Parallel()
	const encoded = "\x08master-0\x02c1\x03lab\x04test\x00"
	for _, tc := range []struct{ name, said, fqdn, want string }{
		{"asks the server to", "\x05\x00\x00\x03box\x00", "master-0.c1.lab.test", "\x05\xff\xff" + encoded},
		{"would do it itself: overridden", "\x04\x00\x00\x03box\x00", "master-0.c1.lab.test.", "\x07\xff\xff" + encoded},
		{"wants none: overridden", "\x0c\x00\x00\x03box\x00", "master-0.c1.lab.test", "\x07\xff\xff" + encoded},
		{"text comes back as text", "\x01\x00\x00box", "master-0.c1.lab.test", "\x01\xff\xffmaster-0.c1.lab.test"},
		{"no name here", "\x04\x00\x00\x03box\x00", "", "\x0c\xff\xff\x00"},
		{"no name here, though it asks", "\x05\x00\x00\x03box\x00", "", "\x0e\xff\xff\x00"},
		{"a name that cannot be", "\x04\x00\x00\x03box\x00", "a..b", "\x0c\xff\xff\x00"},
		{"not said", "", "master-0.c1.lab.test", ""},
		{"cut short", "\x04\x00", "master-0.c1.lab.test", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var more []dhcpv4.Modifier
			if tc.said != "" {
				more = append(more, raw(81, tc.said))
			}
			a := answer(t, parsed(t, message(t, Request, networkd, more...)))
			a.FQDN = tc.fqdn
			if got := string(decode(t, a.Append(nil)).Options[81]); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPadding: 300 bytes at least, zeros behind option 255, and nothing else of a buffer that was used before.
func TestPadding(t *testing.T) {
	t.Parallel()
	a := Reply{Req: parsed(t, message(t, Request, bare)), Type: Nak, ServerID: ip("10.77.0.1")}
	out := a.Append(bytes.Repeat([]byte{0xaa}, 2000)[:0])
	if len(out) != 300 || out[optionsAt+9] != optEnd || !isZero(out[optionsAt+10:]) || !isZero(out[34:headerSize]) {
		t.Errorf("%d bytes: % x", len(out), out)
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	var c Codes
	for _, code := range []uint8{255, 0, 64, 12} {
		c.Add(code)
		c.Add(code)
	}
	if c.String() != "0, 12, 64, 255" || c.Len() != 4 || c.Has(1) {
		t.Errorf("got %s, %d of them", c, c.Len())
	}
}
