package load

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// manyHosts writes a lab of n hosts as an inventory tool would.
func manyHosts(n int) []byte {
	var b bytes.Buffer
	b.WriteString("version: 1\nlab: big\ndomain: big.example\nnetworks:\n  lan: {subnet: 10.0.0.0/16, address: 10.0.0.1, router: 10.0.255.254}\n" +
		"profiles:\n  agent: {os: coreos, kernel: vmlinuz, initrd: [initrd.img]}\nclusters:\n")
	for c := range n/200 + 1 {
		fmt.Fprintf(&b, "  c%d: {kind: openshift, address: 10.0.0.%d}\n", c, c+2)
	}
	b.WriteString("hosts:\n")
	for i := range n {
		ip, role := 256+i, "worker"
		if i%200 < 3 {
			role = "control-plane"
		}
		fmt.Fprintf(&b, "  node-%05d:\n    mac: 52:54:00:00:%02x:%02x\n    ip: 10.0.%d.%d\n    cluster: c%d\n    role: %s\n    profile: agent\n",
			i, i>>8, i&255, ip>>8, ip&255, i/200, role)
	}
	return b.Bytes()
}

func BenchmarkLoad10000(b *testing.B) {
	data := manyHosts(10000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("big.yaml", data, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolve10000(b *testing.B) {
	d, raw := newDecoder(), new(rawLab)
	d.decodeFile("big.yaml", manyHosts(10000), raw)
	b.ReportAllocs()
	for b.Loop() {
		if err := newResolver(d, raw, Options{}).run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeep10000 reports what a resolved lab keeps in memory.
func BenchmarkKeep10000(b *testing.B) {
	data := manyHosts(10000)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		l, err := Parse("big.yaml", data, Options{})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10000, "B/host")
		runtime.KeepAlive(l)
	}
}
