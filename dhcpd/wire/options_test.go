package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// TestBuild: each derived option in bytes.
func TestBuild(t *testing.T) {
	t.Parallel()
	o := network().Build()
	for _, tc := range []struct {
		rfc  string
		code uint8
		want string
	}{
		{"RFC 2132 3.3", 1, "\xff\xff\xff\x00"},
		{"RFC 2132 3.5", 3, "\x0a\x4d\x00\xfe"},
		{"RFC 2132 3.8", 6, "\x0a\x4d\x00\x01"},
		{"RFC 2132 5.1", 26, "\x23\x28"},
		{"RFC 2132 5.3", 28, "\x0a\x4d\x00\xff"},
		{"RFC 2132 8.3", 42, "\x0a\x4d\x00\x01"},
		{"RFC 3397", 119, "\x02c1\x03lab\x04test\x00\xc0\x03"},
		{"RFC 3442, default route added", 121, "\x13\x0a\x00\x00\x0a\x4d\x00\x65\x00\x0a\x4d\x00\xfe"},
		{"MS-DHCPE 2.2.8", 249, "\x13\x0a\x00\x00\x0a\x4d\x00\x65\x00\x0a\x4d\x00\xfe"},
	} {
		if !o.Has(tc.code) {
			t.Errorf("%s: option %d is missing", tc.rfc, tc.code)
			continue
		}
		if got := string(unTLV(o.list[o.index[tc.code]-1].tlv)); got != tc.want {
			t.Errorf("%s: option %d is % x, want % x", tc.rfc, tc.code, got, tc.want)
		}
	}
}

// TestCustomReplaces: what the author wrote replaces ours, and goes to whom ours would have gone.
func TestCustomReplaces(t *testing.T) {
	t.Parallel()
	b := network()
	b.Custom = []lab.Option{
		{Code: 6, Data: []byte{1}}, {Code: 42, Data: []byte{2}}, {Code: 42, Data: []byte{3}}, {Code: 121, Data: []byte{4}}, {Code: 12, Data: []byte{5}},
	}
	for list, want := range map[string][][]byte{"\x02": {{1}, nil, {4}, {5}}, "\x2a\x0c": {{1}, {3}, {4}, {5}}} {
		a := answer(t, parsed(t, message(t, Request, bare, raw(55, list))))
		a.Options = b.Build()
		o := decode(t, a.Append(nil)).Options
		if diff := cmp.Diff(want, [][]byte{o[6], o[42], o[121], o[12]}); diff != "" {
			t.Errorf("options 6, 42, 121 and 12 to who lists %q (-want +got):\n%s", list, diff)
		}
	}
}

// TestRoutes: the examples of RFC 3442.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"0.0.0.0/0": "\x00", "10.0.0.0/8": "\x08\x0a", "10.0.0.0/24": "\x18\x0a\x00\x00", "10.17.0.0/16": "\x10\x0a\x11", "10.27.129.0/24": "\x18\x0a\x1b\x81",
		"10.229.0.128/25": "\x19\x0a\xe5\x00\x80", "10.198.122.47/32": "\x20\x0a\xc6\x7a\x2f",
	} {
		got := encodeRoutes([]lab.Route{{To: netip.MustParsePrefix(to), Via: ip("10.0.0.1")}}, netip.Addr{})
		if string(got) != want+"\x0a\x00\x00\x01" {
			t.Errorf("%s: got % x, want % x and the router", to, got, want)
		}
	}
}

// FuzzRoutes: what is written as options 121 and 249 is read back as the same routes, and there is one default route.
func FuzzRoutes(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0}, uint8(19), []byte{10, 77, 0, 101}, true)
	f.Add([]byte{0, 0, 0, 0}, uint8(0), []byte{10, 77, 0, 254}, false)
	f.Add([]byte{192, 0, 2, 1}, uint8(32), []byte{10, 77, 0, 254}, true)
	f.Fuzz(func(t *testing.T, to []byte, bits uint8, via []byte, hasRouter bool) {
		if len(to) != 4 || len(via) != 4 || bits > 32 {
			return
		}
		route := lab.Route{To: netip.PrefixFrom(netip.AddrFrom4([4]byte(to)), int(bits)), Via: netip.AddrFrom4([4]byte(via))}
		var router netip.Addr
		if hasRouter {
			router = ip("10.77.0.254")
		}
		var got dhcpv4.Routes
		if err := got.FromBytes(encodeRoutes([]lab.Route{route}, router)); err != nil {
			t.Fatal(err)
		}
		if hasRouter && bits != 0 {
			last := got[len(got)-1]
			if ones, _ := last.Dest.Mask.Size(); ones != 0 || last.Router.String() != router.String() {
				t.Errorf("default route is %s", last)
			}
			got = got[:len(got)-1]
		}
		if len(got) != 1 || got[0].Dest.String() != route.To.Masked().String() || got[0].Router.String() != route.Via.String() {
			t.Errorf("wrote %v, read %v", route, got)
		}
	})
}

// FuzzSearch: a search list is read back by the codec's decoder.
func FuzzSearch(f *testing.F) {
	f.Add("c1.lab.test lab.test other.test a.c1.lab.test")
	f.Add("a a.a a.a.a A. a")
	f.Fuzz(func(t *testing.T, text string) {
		domains := strings.Fields(text)
		var want []string
		for _, d := range domains {
			if !validDomain(d) {
				return
			}
			want = append(want, strings.ToLower(strings.TrimSuffix(d, ".")))
		}
		got, err := rfc1035label.FromBytes(encodeSearch(domains))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Labels); diff != "" && len(want) > 0 {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestCustomRouter: systems that take routes (121) pass option 3 over, so the author's router is the default route there, too.
func TestCustomRouter(t *testing.T) {
	t.Parallel()
	routes := []lab.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("192.168.16.101")}}
	o := Builder{Router: netip.MustParseAddr("192.168.16.254"), Routes: routes, Custom: []lab.Option{{Code: 3, Data: []byte{192, 168, 16, 253, 192, 168, 16, 252}}}}.Build()
	a := Reply{Req: parsed(t, message(t, Discover, networkd)), Type: Offer, Options: o}
	p := decode(t, a.Append(nil))
	if got, want := fmt.Sprint(p.Router(), p.ClasslessStaticRoute()), "[192.168.16.253 192.168.16.252] [route to 10.0.0.0/8 via 192.168.16.101 route to 0.0.0.0/0 via 192.168.16.253]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
