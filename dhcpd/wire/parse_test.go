package wire

import (
	"bytes"
	"flag"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/golden"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var update = flag.Bool("update", false, "rewrite golden files")

func edit(b []byte, at int, v ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], v)
	return b
}

// TestParseRefuses: what gets no answer, and the reason that is counted.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := message(t, Discover, bare)
	for _, tc := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"header alone", good[:headerSize], ErrShort},
		{"no cookie", edit(good, headerSize, 0), ErrShort},
		{"reply", edit(good, 0, opReply), ErrNotRequest},
		{"BOOTP: no option 53", overloaded("\xff", "", ""), ErrNotRequest},
		{"cookie and nothing else", overloaded("", "", ""), ErrNotRequest},
		{"option 53 empty", overloaded("\x35\x00\xff", "", ""), ErrNotRequest},
		{"option 53 twice", overloaded("\x35\x01\x01\x35\x01\x01\xff", "", ""), ErrNotRequest},
		{"option 53 in a field that is not open", overloaded("\xff", "\x35\x01\x01\xff", ""), ErrNotRequest},
		{"option 53 behind the end", overloaded("\xff\x35\x01\x01", "", ""), ErrNotRequest},
		{"option 53 behind one cut short", overloaded("\x35\x05\x01", "", ""), ErrNotRequest},
		{"not Ethernet", edit(good, 1, 32), ErrHardware},
		{"InfiniBand, RFC 4390", edit(good, 1, 32, 0), ErrHardware},
		{"hardware address of 16 bytes", edit(good, 2, 16), ErrHardware},
		{"no hardware address", edit(good, 28, 0, 0, 0, 0, 0, 0), ErrHardware},
		{"multicast hardware address", edit(good, 28, 1), ErrHardware},
		{"broadcast hardware address", edit(good, 28, 255, 255, 255, 255, 255, 255), ErrHardware},
		{"17 hops", edit(good, 3, 17), ErrHops},
		{"16 hops", edit(good, 3, 16), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := new(Packet).Parse(tc.data); err != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestParseErrorsAreLabels(t *testing.T) {
	t.Parallel()
	var labels []string
	for _, e := range []ParseError{ErrShort, ErrNotRequest, ErrHardware, ErrHops} {
		labels = append(labels, e.Label())
		if !strings.Contains(e.Error(), e.Label()) {
			t.Errorf("%q does not say %q", e.Error(), e.Label())
		}
	}
	if diff := cmp.Diff([]string{"malformed", "not_request", "hardware", "hops"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestParseOptions: odd packets, and what is read of them.
func TestParseOptions(t *testing.T) {
	t.Parallel()
	const discover = "\x35\x01\x01"
	for _, tc := range []struct {
		name string
		data []byte
		read func(r *Packet) any
		want any
	}{
		{"no end option", overloaded(discover+"\x0c\x01a", "", ""), func(r *Packet) any { return r.Hostname() }, "a"},
		{"pads between", overloaded("\x00\x00"+discover+"\x00\x0c\x01a\x00\xff", "", ""), func(r *Packet) any { return r.Hostname() }, "a"},
		{"one cut short does not spoil the rest", overloaded(discover+"\x0c\x01a\x3d\x07\x01", "", ""), func(r *Packet) any { return r.Hostname() }, "a"},
		{"code without length", overloaded(discover+"\x0c", "", ""), func(r *Packet) any { return r.Hostname() }, ""},
		{"of no length", overloaded(discover+"\x32\x00\x3d\x00\x37\x00\x5d\x00\x52\x00\xff", "", ""), func(r *Packet) any {
			return [4]any{r.Requested.IsValid(), len(r.ClientID), r.HasArch, len(r.ParamList)}
		}, [4]any{false, 0, false, 0}},
		{"RFC 3396: in two parts", overloaded("\x3d\x02ab"+discover+"\x3d\x02cd\xff", "", ""), func(r *Packet) any { return string(r.ClientID) }, "abcd"},
		{"RFC 3396: two options in parts, mixed", overloaded("\x3d\x01a\x3c\x01x\x3d\x01b\x3c\x01y"+discover+"\xff", "", ""), func(r *Packet) any {
			return string(r.ClientID) + string(r.VendorClass)
		}, "abxy"},
		{"RFC 2131 4.1: file", overloaded("\x34\x01\x01\xff", discover+"\x0c\x01a\xff", "\x0c\x01b"), func(r *Packet) any { return r.Hostname() }, "a"},
		{"RFC 2131 4.1: sname", overloaded("\x34\x01\x02\xff", "\x0c\x01a", discover+"\x0c\x01b\xff"), func(r *Packet) any { return r.Hostname() }, "b"},
		{"RFC 2131 4.1: options, file, sname in this order", overloaded("\x34\x01\x03\x3d\x01a\xff", "\x3d\x01b\xff"+"\x3d\x01x", "\x3d\x01c"+discover+"\xff"), func(r *Packet) any {
			return string(r.ClientID)
		}, "abc"},
		{"option 52 counts in the options field alone", overloaded("\x34\x01\x01"+discover+"\xff", "\x34\x01\x02\x0c\x01a", "\x0c\x01b\xff"), func(r *Packet) any { return r.Hostname() }, "a"},
		{"option 52 twice", overloaded("\x34\x01\x01\x34\x01\x01"+discover+"\xff", "\x0c\x01a\xff", ""), func(r *Packet) any { return r.Hostname() }, ""},
		{"option 52 of no known value", overloaded("\x34\x01\x06"+discover+"\xff", "", "\x0c\x01b\xff"), func(r *Packet) any { return r.Hostname() }, ""},
		{"architectures as a list", overloaded(discover+"\x5d\x04\x00\x10\x00\x07\xff", "", ""), func(r *Packet) any { return r.Arch }, uint16(16)},
		{"architecture of one byte", overloaded(discover+"\x5d\x01\x07\xff", "", ""), func(r *Packet) any { return r.HasArch }, false},
		{"architecture in option 60 alone", overloaded(discover+"\x3c\x20PXEClient:Arch:00011:UNDI:003000\xff", "", ""), func(r *Packet) any { return [2]any{r.Arch, r.HasArch} }, [2]any{uint16(11), true}},
		{"architecture that is no number", overloaded(discover+"\x3c\x10PXEClient:Arch:x\xff", "", ""), func(r *Packet) any { return r.HasArch }, false},
		{"maximum size", overloaded(discover+"\x39\x02\x05\xdc\xff", "", ""), func(r *Packet) any { return r.MaxSize }, 1500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, tc.read(parsed(t, tc.data))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseReuse: nothing of one packet is seen in the next.
func TestParseReuse(t *testing.T) {
	t.Parallel()
	r := parsed(t, message(t, Request, ipxe, raw(82, "\x01\x01x\x13\x00"), withGIAddr("10.0.0.1"), raw(50, "\x0a\x00\x00\x02")))
	if err := r.Parse(message(t, Discover, bare)); err != nil {
		t.Fatal(err)
	}
	want := parsed(t, message(t, Discover, bare))
	r.parts, want.parts = parts{}, parts{}
	if diff := cmp.Diff(want, r, cmp.AllowUnexported(Packet{}, parts{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-fresh +reused):\n%s", diff)
	}
}

func TestStage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		who  client
		more dhcpv4.Modifier
		want ClientKind
	}{
		{"UEFI", ovmf, nil, ClientPXE},
		{"UEFI, HTTP", ovmfHTTP, nil, ClientHTTP},
		{"iPXE, user class raw", ipxe, nil, ClientIPXE},
		{"iPXE, user class by RFC 3004", ovmf, raw(77, "\x04iPXE"), ClientIPXE},
		{"iPXE by option 175 alone", ovmf, raw(175, "\xb0\x01\x01"), ClientIPXE},
		{"iPXE by option 175 of no length", ovmf, raw(175, ""), ClientIPXE},
		{"Tinkerbell's build", ovmf, raw(77, "Tinkerbell"), ClientIPXE},
		{"U-Boot", bare, raw(60, "U-Boot.armv8"), ClientPXE},
		{"system", networkd, nil, ClientOS},
		{"Debian's installer", bare, raw(60, "d-i"), ClientOS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var more []dhcpv4.Modifier
			if tc.more != nil {
				more = append(more, tc.more)
			}
			if got := parsed(t, message(t, Discover, tc.who, more...)).Client; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestRelay: where the client is, by RFC 3527, RFC 3011 and giaddr, in this order; RFC 5107; RFC 8357; cut short.
func TestRelay(t *testing.T) {
	t.Parallel()
	type said struct {
		Subnet, Override string
		Port             bool
		Circuit, Remote  string
	}
	const zero = "invalid IP"
	for _, tc := range []struct {
		name string
		more []dhcpv4.Modifier
		want said
	}{
		{"none", nil, said{zero, zero, false, "", ""}},
		{"giaddr", []dhcpv4.Modifier{withGIAddr("192.0.2.1")}, said{"192.0.2.1", zero, false, "", ""}},
		{"RFC 3011", []dhcpv4.Modifier{withGIAddr("192.0.2.1"), raw(118, "\x0a\x01\x00\x00")}, said{"10.1.0.0", zero, false, "", ""}},
		{"RFC 3527", []dhcpv4.Modifier{withGIAddr("192.0.2.1"), raw(118, "\x0a\x01\x00\x00"), raw(82, "\x05\x04\x0a\x02\x00\x00")}, said{"10.2.0.0", zero, false, "", ""}},
		{"RFC 3527 of zeros", []dhcpv4.Modifier{withGIAddr("192.0.2.1"), raw(82, "\x05\x04\x00\x00\x00\x00")}, said{"192.0.2.1", zero, false, "", ""}},
		{"RFC 3527 of zeros, RFC 3011", []dhcpv4.Modifier{raw(118, "\x0a\x01\x00\x00"), raw(82, "\x05\x04\x00\x00\x00\x00")}, said{"10.1.0.0", zero, false, "", ""}},
		{"all", []dhcpv4.Modifier{raw(82, "\x01\x04port\x02\x02sw\x0b\x04\xc0\x00\x02\x09\x13\x00")}, said{zero, "192.0.2.9", true, "port", "sw"}},
		{"cut short", []dhcpv4.Modifier{raw(82, "\x01\x04port\x05\x04\x0a\x02\x00")}, said{zero, zero, false, "port", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := parsed(t, message(t, Discover, bare, tc.more...))
			got := said{r.LinkAddr.String(), r.ServerIDOverride.String(), r.RelayPort, string(r.CircuitID), string(r.RemoteID)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, twelve, fqdn, want string }{
		{"none", "", "", ""},
		{"label", "box", "", "box"},
		{"domain is dropped, case too", "Box.Lab.Test", "", "box"},
		{"NUL at the end", "box\x00\x00", "", "box"},
		{"underscore", "my_box", "", ""},
		{"hyphen in front", "-box", "", ""},
		{"markup", "<b>", "", ""},
		{"NUL inside", "a\x00b", "", ""},
		{"63", strings.Repeat("a", 63), "", strings.Repeat("a", 63)},
		{"64", strings.Repeat("a", 64), "", ""},
		{"RFC 4702, text", "", "\x00\x00\x00Win.ad.test", "win"},
		{"RFC 4702, DNS", "", "\x04\x00\x00\x03Win\x02ad\x04test\x00", "win"},
		{"RFC 4702, DNS, a part of a name", "", "\x04\x00\x00\x03win", "win"},
		{"RFC 4702 3.1: before option 12", "twelve", "\x04\x00\x00\x03win\x00", "win"},
		{"RFC 4702, empty", "twelve", "\x05\x00\x00", "twelve"},
		{"RFC 4702, label beyond the end", "twelve", "\x04\x00\x00\x09win", "twelve"},
		{"RFC 4702, cut short", "twelve", "\x04\x00", "twelve"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var more []dhcpv4.Modifier
			if tc.twelve != "" {
				more = append(more, raw(12, tc.twelve))
			}
			if tc.fqdn != "" {
				more = append(more, raw(81, tc.fqdn))
			}
			if got := parsed(t, message(t, Discover, bare, more...)).Hostname(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestCopyTo: a copy gives the same reply and option values after the packet's buffer is used again.
func TestCopyTo(t *testing.T) {
	t.Parallel()
	for name, data := range captured(t) {
		var buf []byte
		var kept Packet
		original := parsed(t, data)
		want := answer(t, original).Append(nil)
		buf = original.CopyTo(&kept, buf)
		clear(data)
		if got := answer(t, &kept).Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: the reply to the copy differs:\n%x\n%x", name, got, want)
		}
		checkMemory(t, &kept, buf)
	}
}

// TestCaptured: what real clients said.
func TestCaptured(t *testing.T) {
	t.Parallel()
	packets := captured(t)
	var got []string
	for _, name := range slices.Sorted(maps.Keys(packets)) {
		r := parsed(t, packets[name])
		arch := "-"
		if r.HasArch {
			arch = strconv.Itoa(int(r.Arch))
		}
		got = append(got, strings.TrimRight(strings.Join([]string{
			name, r.Type.String(), string(r.Client), arch, string(r.VendorClass), r.Hostname(),
		}, " "), " "))
	}
	golden.Check(t, update, "testdata/captured.want", strings.Join(got, "\n")+"\n")
}
