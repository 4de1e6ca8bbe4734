package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// A dice makes small choices of fuzzed bytes.
type dice struct{ b []byte }

func (d *dice) roll(n int) int {
	if len(d.b) == 0 {
		return 0
	}
	v := int(d.b[0])
	d.b = d.b[1:]
	return v % n
}

// pick returns one of the choices.
func pick[T any](d *dice, choices ...T) T { return choices[d.roll(len(choices))] }

// some returns up to two of the choices, mostly none.
func some[T any](d *dice, choices ...T) (out []T) {
	for range max(0, d.roll(5)-2) {
		out = append(out, pick(d, choices...))
	}
	return out
}

func patterns(t *testing.T, texts ...string) (out []lab.Pattern) {
	t.Helper()
	for _, s := range texts {
		p, err := lab.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// fuzzPool makes criteria of few values, so that several pools match one machine.
func fuzzPool(t *testing.T, d *dice, name string) *lab.Pool {
	p := &lab.Pool{Name: name}
	for _, s := range some(d, "52:54:00:*:*:*", "52:54:00:00:00:00/20", "*:*:*:*:*:01", "*:*:*:*:*:*", "52:54:00:00:00:01/48", "02:00:00:*:*:*") {
		m, err := lab.ParseMACPattern(s)
		if err != nil {
			t.Fatal(err)
		}
		p.MACs = append(p.MACs, m)
	}
	for _, s := range some(d, "bios", "uefi-x64", "16", "uefi-arm64") {
		a, err := lab.ParseArch(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Archs = append(p.Archs, a)
	}
	p.VendorClasses = patterns(t, some(d, "*", "HTTP*", "HTTPClient", "*Client", "PXE*")...)
	p.UserClasses = patterns(t, some(d, "*", "k*", "kiosk", "hex:056b696f736b")...)
	p.CircuitIDs = patterns(t, some(d, "*", "eth0/*", "eth0/7", "*7", "hex:00")...)
	p.RemoteIDs = patterns(t, some(d, "*", "sw-*", "sw-7", "*-7")...)
	return p
}

func fuzzAsker(d *dice) *lab.Client {
	return &lab.Client{
		MAC:     pick(d, lab.MAC{0x52, 0x54, 0, 0, 0, 1}, lab.MAC{0x52, 0x54, 0, 0xff, 0, 1}, lab.MAC{2, 0, 0, 0, 0, 3}),
		HasArch: pick(d, false, true), Arch: pick[uint16](d, 0, 7, 16, 19, 63, 64, 65535),
		VendorClass: []byte(pick(d, "", "HTTPClient", "PXEClient", "x")), UserClass: []byte(pick(d, "", "kiosk", "\x05kiosk", "\x01x\x05kiosk", "\x05kio")),
		CircuitID: []byte(pick(d, "", "eth0/7", "eth1/7", "\x00")), RemoteID: []byte(pick(d, "", "sw-7", "sw-8")),
	}
}

// specificity is the documented order of pools, computed a second way: the greater list wins.
func specificity(p *lab.Pool, a *lab.Client) ([]int, bool) {
	bits, arch := -1, -1
	for _, m := range p.MACs {
		if m.Match(a.MAC) {
			bits = max(bits, m.Bits())
		}
	}
	for _, x := range p.Archs {
		if a.HasArch && x.Match(a.Arch) {
			arch = max(arch, 1)
			if strings.Trim(x.String(), "0123456789") == "" {
				arch = 2
			}
		}
	}
	best := func(ps []lab.Pattern, values ...[]byte) int {
		n := -1
		for _, x := range ps {
			for _, v := range values {
				switch {
				case !x.Match(v):
				case x.Exact():
					n = max(n, 1000)
				default:
					n = max(n, 1+len(strings.ReplaceAll(x.String(), "*", "")))
				}
			}
		}
		return n
	}
	classes := [][]byte{a.UserClass}
	switch u := string(a.UserClass); u {
	case "\x05kiosk":
		classes = append(classes, []byte("kiosk"))
	case "\x01x\x05kiosk":
		classes = append(classes, []byte("x"), []byte("kiosk"))
	}
	user, vendor := best(p.UserClasses, classes...), best(p.VendorClasses, a.VendorClass)
	circuit, remote := best(p.CircuitIDs, a.CircuitID), best(p.RemoteIDs, a.RemoteID)
	for _, key := range []struct{ n, worth int }{
		{len(p.MACs), bits}, {len(p.Archs), arch}, {len(p.UserClasses), user}, {len(p.VendorClasses), vendor}, {len(p.CircuitIDs), circuit}, {len(p.RemoteIDs), remote},
	} {
		if key.n > 0 && key.worth < 0 {
			return nil, false
		}
	}
	is := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return []int{
		is(circuit > 0) + is(remote > 0), is(circuit == 1000) + is(remote == 1000), is(circuit > 0), max(circuit, 0) + max(remote, 0),
		max(bits, 0), max(user, 0), max(vendor, 0), max(arch, 0),
	}, true
}

// FuzzPoolFor asserts that the pool that is found matches, that no other match is more specific or as specific and
// earlier, and that none is found only where none matches.
func FuzzPoolFor(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte(strings.Repeat("\x03\x01\x04\x02\x00\x05", 40)))
	f.Add([]byte("the quick brown fox jumps over the lazy dog and asks for an address of a pool"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &dice{b}
		a := fuzzAsker(d)
		n := &lab.Network{}
		for i := range 1 + d.roll(8) {
			n.Pools = append(n.Pools, fuzzPool(t, d, fmt.Sprint(i)))
		}
		var want *lab.Pool
		var most []int
		for _, p := range n.Pools {
			if s, ok := specificity(p, a); ok && (want == nil || slices.Compare(s, most) > 0) {
				want, most = p, s
			}
		}
		if got := n.PoolFor(a); got != want {
			t.Errorf("%+v: pool %q, want %q %v", a, poolName(got), poolName(want), most)
			for _, p := range n.Pools {
				s, ok := specificity(p, a)
				t.Logf("%s %v: %v %v", p.Name, p.Criteria(), s, ok)
			}
		}
	})
}

// FuzzPattern asserts that a pattern is read back from its text, that '*' matches whatever is there, and that what
// matches the pattern still does with more stars.
func FuzzPattern(f *testing.F) {
	f.Add("eth0/*", []byte("eth0/7"))
	f.Add("hex:0001ff", []byte{0, 1, 0xff})
	f.Add("*a*ab*", []byte("xaaab"))
	f.Add("text:*", []byte("*"))
	f.Fuzz(func(t *testing.T, s string, b []byte) {
		p, err := lab.ParsePattern(s)
		if err != nil {
			return
		}
		again, err := lab.ParsePattern(p.String())
		if err != nil || again != p {
			t.Fatalf("%q is %q, which is %q, %v", s, p, again, err)
		}
		if p.Exact() {
			return
		}
		wider, err := lab.ParsePattern("*" + p.String() + "*")
		if err != nil || p.Match(b) && !wider.Match(b) {
			t.Errorf("%s matches %q, %s does not (%v)", p, b, wider, err)
		}
		if inside := []byte(strings.ReplaceAll(p.String(), "*", string(b))); len(inside) > 0 && !p.Match(inside) {
			t.Errorf("%s does not match %q", p, inside)
		}
	})
}

// BenchmarkPoolFor looks among 100 pools, for the one that fits best and for none.
func BenchmarkPoolFor(b *testing.B) {
	var pools []string
	for i := range 25 {
		pools = append(pools, fmt.Sprintf("port%d: {circuit_id: eth0/%d, remote_id: sw-1}", i, i), fmt.Sprintf("mac%d: {mac: 52:54:%02x:*:*:*}", i, i),
			fmt.Sprintf(`class%d: {vendor_class: "HTTPClient*%d"}`, i, i), fmt.Sprintf("arch%d: {arch: %d}", i, 100+i))
	}
	for i := range pools {
		pools[i] = strings.NewReplacer("{", "", "}", "").Replace(pools[i])
	}
	n := parse(b, manyPools(pools...)).Networks[0]
	for name, a := range map[string]*lab.Client{
		"port":  {MAC: lab.MAC{0x52, 0x54, 3}, CircuitID: []byte("eth0/24"), RemoteID: []byte("sw-1"), HasArch: true, Arch: 7, VendorClass: []byte("PXEClient:Arch:00007:UNDI:003016")},
		"mac":   {MAC: lab.MAC{0x52, 0x54, 3}, HasArch: true, Arch: 7, VendorClass: []byte("PXEClient:Arch:00007:UNDI:003016")},
		"class": {HasArch: true, Arch: 16, VendorClass: []byte("HTTPClient:Arch:00016:UNDI:003011")},
		"none":  {HasArch: true, Arch: 7, CircuitID: []byte("eth1/3"), VendorClass: []byte("PXEClient:Arch:00007:UNDI:003016"), UserClass: []byte("iPXE")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p := n.PoolFor(a); (p == nil) != (name == "none") {
					b.Fatal(poolName(p))
				}
			}
		})
	}
}

// TestPoolForAllocatesNothing: it runs for every packet.
func TestPoolForAllocatesNothing(t *testing.T) {
	n := parse(t, manyPools("a: arch: bios", `b: vendor_class: "x*", user_class: kiosk`, "c:")).Networks[0]
	a := &lab.Client{HasArch: true, VendorClass: []byte("xyz"), UserClass: []byte("\x05kiosk")}
	if allocs := testing.AllocsPerRun(100, func() {
		if p := n.PoolFor(a); poolName(p) != "b" {
			t.Errorf("pool %q", poolName(p))
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a look-up", allocs)
	}
}
