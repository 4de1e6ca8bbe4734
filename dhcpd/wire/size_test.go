package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestSizes: no client gets more than it takes, and what it cannot do without stays.
func TestSizes(t *testing.T) {
	t.Parallel()
	options := func(sizes ...int) []lab.Option {
		var list []lab.Option
		for i, n := range sizes {
			list = append(list, lab.Option{Code: uint8(220 + i), Data: bytes.Repeat([]byte{1}, n)})
		}
		return list
	}
	size := func(n int) dhcpv4.Modifier { return raw(57, string([]byte{byte(n >> 8), byte(n)})) }
	relay, agent := withGIAddr("10.77.0.254"), raw(82, "\x01\x40"+strings.Repeat("x", 64))
	huge := raw(82, strings.Repeat("\x01\x62"+strings.Repeat("x", 98), 13))
	for _, tc := range []struct {
		name     string
		who      client
		more     []dhcpv4.Modifier
		custom   []lab.Option
		max      int
		left     string
		overload int
	}{
		{"fits", bare, nil, options(20), 548, "", 0},
		{"RFC 2131 2: 576 without option 57", bare, nil, options(600), 548, "220", 0},
		{"option 57 below 576 is 576", bare, []dhcpv4.Modifier{size(100)}, options(600), 548, "220", 0},
		{"RFC 3396 5: in parts over all", bare, nil, options(300), 548, "", 3},
		{"option 57 of 1500", bare, []dhcpv4.Modifier{size(1500)}, options(300, 250), 1472, "", 0},
		{"option 57 beyond Ethernet", bare, []dhcpv4.Modifier{size(9000)}, options(300, 250, 250, 250, 250), 1472, "224", 0},
		{"RFC 2131 4.1: the rest in file", bare, nil, options(100, 100), 548, "", 1},
		{"RFC 2131 4.1: the rest in file and sname", bare, nil, options(150, 120, 50), 548, "", 3},
		{"RFC 2131 4.1: and what fits nowhere is left out", bare, nil, options(150, 120, 50, 60), 548, "223", 3},
		{"file holds 127 bytes and an end", bare, nil, options(150, 125), 548, "", 1},
		{"file holds no 128, the rest is elsewhere", bare, nil, options(150, 126), 548, "", 1},
		{"sname holds 63 bytes and an end", bare, nil, options(150, 120, 61), 548, "", 3},
		{"sname holds no 64, the rest is elsewhere", bare, nil, options(150, 120, 62), 548, "", 3},
		{"RFC 2131 4.1: not if it gains nothing", bare, nil, options(500), 548, "220", 0},
		{"netboot-facts C3: not for firmware", ovmf, []dhcpv4.Modifier{size(576), raw(55, "\xdc\xdd\xde")}, options(150, 100, 20), 548, "221", 0},
		{"not for iPXE", ipxe, []dhcpv4.Modifier{size(576), raw(55, "\xdc\xdd\xde")}, options(150, 100, 20), 548, "221", 0},
		{"RFC 3046 2.1: a relay takes option 82 off again", bare, []dhcpv4.Modifier{relay, agent}, options(120), 548 + 68, "", 0},
		{"without a relay it counts", bare, []dhcpv4.Modifier{agent}, options(120), 548, "", 1},
		{"RFC 3046 2.2: no room for option 82", bare, []dhcpv4.Modifier{relay, huge}, nil, 548, "82", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := answer(t, parsed(t, message(t, Request, tc.who, tc.more...)))
			b := network()
			b.Custom = tc.custom
			a.Options = b.Build()
			out := a.Append(nil)
			checkFields(t, out)
			p := decode(t, out)
			if len(out) > tc.max {
				t.Errorf("%d bytes, want at most %d", len(out), tc.max)
			}
			if got := a.Omitted.String(); got != tc.left {
				t.Errorf("left out %q, want %q", got, tc.left)
			}
			if over := p.Options[52]; tc.overload == 0 && over != nil || tc.overload != 0 && !bytes.Equal(over, []byte{byte(tc.overload)}) {
				t.Errorf("option 52 is %d, want %d", over, tc.overload)
			}
			for _, code := range []uint8{1, 3, 6, 51, 53, 54} {
				if p.Options[code] == nil {
					t.Errorf("option %d is missing", code)
				}
			}
			for _, c := range tc.custom {
				if got := p.Options[c.Code]; !a.Omitted.Has(c.Code) && !bytes.Equal(got, c.Data) {
					t.Errorf("option %d: %d bytes, want %d", c.Code, len(got), len(c.Data))
				}
			}
		})
	}
}

// checkFields: where file and sname hold options, they end in option 255 and zeros (RFC 2131 section 4.1).
func checkFields(t *testing.T, out []byte) {
	t.Helper()
	over := decode(t, out).Options[52]
	if over == nil {
		return
	}
	for i, field := range [][]byte{out[fileAt:headerSize], out[snameAt:fileAt]} {
		if over[0]&(1<<i) == 0 {
			continue
		}
		for len(field) > 1 && field[0] != optEnd {
			field = field[2+int(field[1]):]
		}
		if field[0] != optEnd || !isZero(field[1:]) {
			t.Errorf("field %d ends in % x", i, field)
		}
	}
	if len(over) != 1 || over[0] == 0 || over[0] > 3 {
		t.Errorf("option 52 is % x", over)
	}
}

// TestExactSize: every length up to the very last byte is used, and none beyond.
func TestExactSize(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(a *Reply, v string){
		"custom": func(a *Reply, v string) {
			a.Options = Builder{Custom: []lab.Option{{Code: 200, Data: []byte(v), Force: true}}}.Build()
		},
		"boot file":   func(a *Reply, v string) { a.BootFile = v },
		"echo":        func(a *Reply, v string) { a.Req.ClientID = []byte(v) },
		"agent":       func(a *Reply, v string) { a.Req.AgentInfo = []byte(v) },
		"agent, both": func(a *Reply, v string) { a.Req.AgentInfo, a.Req.ClientID = []byte("x"), []byte(v) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			longest := 0
			for n := 1; n < 500; n++ {
				a := Reply{Req: parsed(t, message(t, Discover, ovmf)), Type: Offer, ServerID: ip("10.77.0.1")}
				a.Req.MaxSize = 576
				set(&a, strings.Repeat("v", n))
				longest = max(longest, len(a.Append(nil)))
			}
			// Without Lease option 82 must leave more room than is used here.
			if want := 548; longest > want || longest < want && name != "agent" {
				t.Errorf("the longest message is %d bytes, want %d", longest, want)
			}
		})
	}
}

// TestBootFileIsNotOverwritten: with a file name in the header, options go to sname alone.
func TestBootFileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	a := answer(t, parsed(t, message(t, Request, bare)))
	b := network()
	b.Custom = []lab.Option{{Code: 220, Data: make([]byte, 150)}, {Code: 221, Data: make([]byte, 50)}}
	a.Options, a.BootFile = b.Build(), "file"
	p := decode(t, a.Append(nil))
	if p.BootFileName != "file" || !bytes.Equal(p.Options[52], []byte{2}) || len(p.Options[221]) != 50 {
		t.Errorf("file %q, option 52 %d, option 221 of %d bytes; left out %s", p.BootFileName, p.Options[52], len(p.Options[221]), a.Omitted.String())
	}
}
