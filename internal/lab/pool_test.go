package lab_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
)

func mac(t testing.TB, s string) lab.MAC {
	t.Helper()
	m, err := lab.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// manyPools writes a lab with one network and these pools, "name: criteria" each, with a range of their own.
func manyPools(pools ...string) string {
	var b strings.Builder
	b.WriteString("networks:\n  lan:\n    subnet: 10.0.0.0/16\n    address: 10.0.0.1\n    pools:\n")
	for i, p := range pools {
		name, criteria, _ := strings.Cut(p, ":")
		if criteria = strings.TrimSpace(criteria); criteria != "" {
			criteria = ", " + criteria
		}
		fmt.Fprintf(&b, "      %s: {range: 10.0.%d.10-10.0.%d.20%s}\n", name, i+1, i+1, criteria)
	}
	return b.String()
}

// TestPoolFor asks for each rule of precedence, in both orders of the lab file's names.
func TestPoolFor(t *testing.T) {
	t.Parallel()
	m := mac(t, "52:54:00:12:34:56")
	classes := func(names ...string) (b []byte) {
		for _, n := range names {
			b = append(append(b, byte(len(n))), n...)
		}
		return b
	}
	tests := []struct {
		name  string
		pools []string
		asker lab.Client
		want  string
	}{
		{"nobody", []string{"a: mac: 02:00:00:*:*:*"}, lab.Client{MAC: m}, ""},
		{"anyone", []string{"a: mac: 02:00:00:*:*:*", "b:"}, lab.Client{MAC: m}, "b"},
		{"any of a list", []string{`a: mac: ["02:00:00:*:*:*", "52:54:00:00:00:00/24"]`, "b:"}, lab.Client{MAC: m}, "a"},
		{"more bits", []string{"a: mac: 52:54:00:*:*:*", "b: mac: 52:54:00:10:00:00/28"}, lab.Client{MAC: m}, "b"},
		{"best of a list", []string{"a: mac: 52:54:00:12:*:*", `b: mac: ["52:*:*:*:*:*", "52:54:00:12:34:*"]`}, lab.Client{MAC: m}, "b"},
		{"all keys must match", []string{"a: mac: 52:54:00:*:*:*, arch: uefi-arm64", "b:"}, lab.Client{MAC: m, HasArch: true, Arch: 7}, "b"},
		{"arch by PXE", []string{"a: arch: [uefi-arm64]", "b:"}, lab.Client{MAC: m, HasArch: true, Arch: 11}, "a"},
		{"arch by HTTP", []string{"a: arch: [uefi-arm64]", "b:"}, lab.Client{MAC: m, HasArch: true, Arch: 19}, "a"},
		{"EBC is x64", []string{"a: arch: uefi-x64", "b:"}, lab.Client{MAC: m, HasArch: true, Arch: 9}, "a"},
		{"arch 0 is BIOS", []string{"a: arch: bios", "b:"}, lab.Client{MAC: m, HasArch: true}, "a"},
		{"no arch is no BIOS", []string{"a: arch: bios", "b:"}, lab.Client{MAC: m}, "b"},
		{"arch by number", []string{"a: arch: uefi-x64", "b: arch: 16"}, lab.Client{MAC: m, HasArch: true, Arch: 16}, "b"},
		{"a number is one code", []string{"a: arch: uefi-x64", "b: arch: 16"}, lab.Client{MAC: m, HasArch: true, Arch: 7}, "a"},
		{"a code beyond 63", []string{"a: arch: 64", "b: arch: bios"}, lab.Client{MAC: m, HasArch: true, Arch: 64}, "a"},
		{"vendor class", []string{`a: vendor_class: ["HTTPClient*"]`, "b: arch: uefi-x64"}, lab.Client{MAC: m, HasArch: true, Arch: 16, VendorClass: []byte("HTTPClient:Arch:00016")}, "a"},
		{"longer vendor class", []string{`a: vendor_class: "HTTP*"`, `b: vendor_class: "*Arch:00016"`}, lab.Client{MAC: m, VendorClass: []byte("HTTPClient:Arch:00016")}, "b"},
		{"exact vendor class", []string{`a: vendor_class: "MSFT 5.0*"`, `b: vendor_class: MSFT 5.0`}, lab.Client{MAC: m, VendorClass: []byte("MSFT 5.0")}, "b"},
		{"case counts", []string{`a: vendor_class: "httpclient*"`, "b:"}, lab.Client{MAC: m, VendorClass: []byte("HTTPClient")}, "b"},
		{"star wants something", []string{`a: vendor_class: "*"`, "b:"}, lab.Client{MAC: m}, "b"},
		{"user class before vendor class", []string{"a: vendor_class: MSFT 5.0", `b: user_class: "kio*"`}, lab.Client{MAC: m, VendorClass: []byte("MSFT 5.0"), UserClass: []byte("kiosk")}, "b"},
		{"user class in a list", []string{"a:", "b: user_class: kiosk"}, lab.Client{MAC: m, UserClass: classes("lobby", "kiosk")}, "b"},
		{"not the list as text", []string{"a:", `b: user_class: "*k"`}, lab.Client{MAC: m, UserClass: classes("kiosk", "lobby")}, "b"},
		{"broken list", []string{"a:", "b: user_class: kiosk"}, lab.Client{MAC: m, UserClass: append(classes("kiosk"), 9, 'x')}, "a"},
		{"MAC before user class", []string{"a: mac: 52:54:00:*:*:*", "b: user_class: kiosk"}, lab.Client{MAC: m, UserClass: []byte("kiosk")}, "a"},
		{"circuit before MAC", []string{`a: circuit_id: "*"`, "b: mac: 52:54:00:12:34:56/48"}, lab.Client{MAC: m, CircuitID: []byte("eth0/7")}, "a"},
		{"exact circuit", []string{`a: circuit_id: "eth0/*"`, "b: circuit_id: eth0/7"}, lab.Client{MAC: m, CircuitID: []byte("eth0/7")}, "b"},
		{"circuit in bytes", []string{"a:", `b: circuit_id: ["hex:0001ff", eth0/7]`}, lab.Client{MAC: m, CircuitID: []byte{0, 1, 0xff}}, "b"},
		{"both ids", []string{"a: circuit_id: eth0/7", `b: circuit_id: "eth*", remote_id: "sw-7*"`}, lab.Client{MAC: m, CircuitID: []byte("eth0/7"), RemoteID: []byte("sw-71")}, "b"},
		{"circuit before remote", []string{"a: remote_id: sw-71", "b: circuit_id: eth0/7"}, lab.Client{MAC: m, CircuitID: []byte("eth0/7"), RemoteID: []byte("sw-71")}, "b"},
		{"exact remote before circuit", []string{"a: remote_id: sw-71", `b: circuit_id: "eth0/*"`}, lab.Client{MAC: m, CircuitID: []byte("eth0/7"), RemoteID: []byte("sw-71")}, "a"},
		{"only one id came", []string{"a:", `b: circuit_id: "eth*", remote_id: "sw-7*"`}, lab.Client{MAC: m, CircuitID: []byte("eth0/7")}, "a"},
		{"the first, though the other could be better", []string{"a: mac: 52:54:00:*:*:*", `b: mac: ["52:54:00:ff:ff:ff/48", "52:54:00:*:*:*"]`}, lab.Client{MAC: m}, "a"},
		{"the first among equals", []string{"b: mac: 52:54:00:*:*:*", "a: mac: 52:*:00:12:*:*", "c: mac: 52:54:00:*:*:*, arch: bios"}, lab.Client{MAC: m}, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 {
				l := parse(t, manyPools(tt.pools...))
				if got := poolName(l.Networks[0].PoolFor(&tt.asker)); got != tt.want {
					t.Errorf("%v: pool %q, want %q", tt.pools, got, tt.want)
				}
				slices.Reverse(tt.pools)
			}
		})
	}
}

func poolName(p *lab.Pool) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// TestPoolOf: what is known of a MAC alone does not lead to a pool that asks for more.
func TestPoolOf(t *testing.T) {
	t.Parallel()
	l := parse(t, manyPools("http: vendor_class: HTTPClient, mac: 52:54:00:*:*:*", "kvm: mac: 52:54:*:*:*:*", "arm: arch: bios"))
	if p := l.Networks[0].PoolFor(&lab.Client{MAC: mac(t, "52:54:00:00:00:01")}); poolName(p) != "kvm" {
		t.Errorf("pool %q, want kvm", poolName(p))
	}
	if p := l.Networks[0].PoolFor(&lab.Client{MAC: mac(t, "02:54:00:00:00:01")}); p != nil {
		t.Errorf("pool %q, want none", poolName(p))
	}
}

func TestPoolAt(t *testing.T) {
	t.Parallel()
	l := parse(t, manyPools("c:", "a: arch: 1", "b: arch: 2"))
	for a, want := range map[string]string{
		"10.0.1.9": "", "10.0.1.10": "c", "10.0.1.20": "c", "10.0.1.21": "", "10.0.2.15": "a", "10.0.3.20": "b", "10.0.3.21": "",
		"10.0.0.1": "", "10.0.255.254": "", "192.168.0.1": "", "::1": "",
	} {
		if got := poolName(l.PoolAt(netip.MustParseAddr(a))); got != want {
			t.Errorf("PoolAt(%s) = %q, want %q", a, got, want)
		}
	}
	if l.PoolAt(netip.Addr{}) != nil {
		t.Error("no address is in a pool")
	}
}

// TestMachineOfClass: the system of a machine no longer says what its firmware said, and it stays what it is.
func TestMachineOfClass(t *testing.T) {
	t.Parallel()
	l := parse(t, manyPools(`http: vendor_class: "HTTPClient*", profile: live, options: {"66": "text:x"}, lease: 5m`, "kvm: mac: 52:54:00:*:*:*, profile: other", "any:")+
		"profiles: {live: {kernel: k}, other: {kernel: k}}\n")
	for _, tt := range []struct{ mac, addr, profile string }{
		{"52:54:00:00:00:01", "10.0.1.10", "live"},  // where PoolOf says kvm
		{"02:00:00:00:00:01", "10.0.1.10", "live"},  // where PoolOf says any
		{"52:54:00:00:00:01", "10.0.2.10", "other"}, //
		{"02:00:00:00:00:01", "10.0.2.10", ""},      // not for its MAC
		{"52:54:00:00:00:01", "10.0.3.10", ""},      // boots nothing
		{"52:54:00:00:00:01", "10.0.9.9", ""},
		{"00:00:00:00:00:00", "10.0.1.10", ""},
	} {
		h := l.MachineOf(mac(t, tt.mac), netip.MustParseAddr(tt.addr))
		got := ""
		if h != nil {
			got = h.Profile.Name
		}
		if got != tt.profile {
			t.Errorf("%s at %s boots %q, want %q", tt.mac, tt.addr, got, tt.profile)
		}
		if got == "live" && (len(h.Options) != 1 || h.Lease.String() != "5m0s" || h.Pool.Name != "http") {
			t.Errorf("machine of a pool: %+v", h)
		}
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, text string
		exact    bool
		yes, no  []string
	}{
		{"eth0/7", "eth0/7", true, []string{"eth0/7"}, []string{"eth0/70", "xeth0/7", "ETH0/7", ""}},
		{"eth0/*", "eth0/*", false, []string{"eth0/7", "eth0/"}, []string{"eth1/7", ""}},
		{"*", "*", false, []string{"x", "\x00"}, []string{""}},
		{"a**b*", "a*b*", false, []string{"ab", "axbxb", "a*b"}, []string{"axc", "ba"}},
		{"*ab", "*ab", false, []string{"ab", "aab", "abab"}, []string{"aba"}},
		{"a*bc*d", "a*bc*d", false, []string{"abcbcd", "abbcd"}, []string{"abcbc", "acd"}},
		{"hex:00:01 ff", "hex:0001ff", true, []string{"\x00\x01\xff"}, []string{"0001ff"}},
		{"hex:6b2a", "text:k*", true, []string{"k*"}, []string{"kx"}},
		{"text:hex:0z", "text:hex:0z", true, []string{"hex:0z"}, nil},
		{"HTTPClient:Arch:*", "HTTPClient:Arch:*", false, []string{"HTTPClient:Arch:00016"}, nil},
	} {
		p, err := lab.ParsePattern(tt.in)
		if err != nil || p.String() != tt.text || p.Exact() != tt.exact {
			t.Errorf("%q: %s exact %v, %v; want %s", tt.in, p, p.Exact(), err, tt.text)
		}
		if again, err := lab.ParsePattern(p.String()); again != p || err != nil {
			t.Errorf("%q: read back as %s, %v", tt.in, again, err)
		}
		for _, s := range tt.yes {
			if !p.Match([]byte(s)) {
				t.Errorf("%s does not match %q", p, s)
			}
		}
		for _, s := range tt.no {
			if p.Match([]byte(s)) {
				t.Errorf("%s matches %q", p, s)
			}
		}
	}
	for _, bad := range []string{"", "hex:", "hex:0", "hex:zz", "text:"} {
		if p, err := lab.ParsePattern(bad); err == nil {
			t.Errorf("ParsePattern(%q) = %s, want an error", bad, p)
		}
	}
}

// TestMACPatternLengths: a prefix may end anywhere.
func TestMACPatternLengths(t *testing.T) {
	t.Parallel()
	m := mac(t, "a5:5a:c3:3c:96:69")
	for bits := range 49 {
		p, err := lab.ParseMACPattern(fmt.Sprintf("%s/%d", m, bits))
		if err != nil || p.Bits() != bits || !p.Match(m) {
			t.Fatalf("/%d: %s, %d bits, %v", bits, p, p.Bits(), err)
		}
		if again, err := lab.ParseMACPattern(p.String()); again != p || err != nil {
			t.Errorf("/%d: %s is read back as %s, %v", bits, p, again, err)
		}
		for flip := range 48 {
			other := m
			other[flip/8] ^= 0x80 >> (flip % 8)
			if p.Match(other) != (flip >= bits) {
				t.Errorf("%s and %s, which differs in bit %d: %v", p, other, flip, p.Match(other))
			}
		}
	}
}

func TestUnreachablePools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		pools []string
		want  string // of "b"
	}{
		{"twice anyone", []string{"a:", "b:"}, "a"},
		{"every MAC is anyone", []string{"a:", `b: mac: "*:*:*:*:*:*"`}, "a"},
		{"written otherwise", []string{"a: mac: 52:54:00:*:*:*", "b: mac: 52-54-00-00-00-00/24"}, "a"},
		{"part of a list", []string{"a: arch: [bios, uefi-x64], user_class: k", "b: arch: uefi-x64, user_class: k"}, "a"},
		{"more than a list", []string{"a: arch: uefi-x64", "b: arch: [bios, uefi-x64]"}, ""},
		{"comes first", []string{"b: arch: uefi-x64", "c: arch: [bios, uefi-x64]"}, ""},
		{"asks for more", []string{"a:", "b: arch: bios"}, ""},
		{"asks for less", []string{"a: arch: bios", "b:"}, ""},
		{"other class", []string{`a: vendor_class: "x*"`, "b: vendor_class: x"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := parse(t, manyPools(tt.pools...))
			got := ""
			for _, w := range l.Warnings {
				if w.Key == "networks.lan.pools.b" {
					_, rest, _ := strings.Cut(w.Message, "pool ")
					got, _, _ = strings.Cut(rest, " ")
				}
			}
			if got != tt.want {
				t.Errorf("b gives way to %q, want %q: %v", got, tt.want, l.Warnings)
			}
		})
	}
}

func TestOptionForms(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ab", 900)
	l := parse(t, `
networks:
  lan:
    subnet: 10.0.0.0/24
    address: 10.0.0.1
    options: {"224": {value: "hex:01", force: true}, "225": {value: 10.0.0.1}, "226": "u16:1400", "227": "hex:`+long+`"}
    pools:
      a: {range: 10.0.0.10-10.0.0.20, options: {"230": {value: "text:pool", force: yes}}, per_port: 3}
      b: {range: 10.0.0.30-10.0.0.40, mac: 02:*:*:*:*:*}
  far: {subnet: 10.1.0.0/24, dhcp: off, probe: false}
hosts: {h: {mac: 02:00:00:00:00:01, ip: 10.0.0.5, options: {"231": {value: "u8:1", force: off}}}}
`)
	want := []lab.Option{
		{Code: 224, Data: []byte{1}, Force: true}, {Code: 225, Data: []byte{10, 0, 0, 1}}, {Code: 226, Data: []byte{5, 0x78}},
		{Code: 227, Data: bytes.Repeat([]byte{0xab}, 900)},
	}
	lan := l.Network("lan")
	if diff := cmp.Diff(want, lan.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]lab.Option{{Code: 230, Data: []byte("pool"), Force: true}}, lan.Pools[0].Options); diff != "" {
		t.Errorf("pool's options (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]lab.Option{{Code: 231, Data: []byte{1}}}, l.Host("h").Options); diff != "" {
		t.Errorf("host's options (-want +got):\n%s", diff)
	}
	if lan.Pools[0].PerPort != 3 || lan.Pools[1].PerPort != 0 || lan.Pools[1].Options != nil {
		t.Errorf("pools %+v %+v", lan.Pools[0], lan.Pools[1])
	}
	if !lan.Probe || l.Network("far").Probe {
		t.Errorf("probe %v %v, want true false", lan.Probe, l.Network("far").Probe)
	}
}
