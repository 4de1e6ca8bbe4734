package e2e

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// fastLab has a machine for each way to iPXE, and a script that stays.
const fastLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1}
profiles:
  stay: {ipxe: ipxe/stay.ipxe}
hosts:
  node: {mac: "52:54:00:77:00:21", ip: 10.77.0.21, profile: stay}
`

// chains is what each firmware asks for from power-on to its script: a lease, and who asks for it; files, by name.
var chains = map[qemu.Firmware][]string{
	qemu.BIOS:      {"lease ipxe", "script_served"},
	qemu.BIOSPlain: {"lease pxe", "tftp_served undionly.kpxe", "script_served"},
	qemu.UEFIROM:   {"lease ipxe", "script_served"},
	qemu.UEFIPXE:   {"lease pxe", "tftp_probe ipxe.efi", "tftp_served ipxe.efi", "script_served"},
	qemu.UEFIHTTP:  {"lease http", "firmware_served ipxe.efi", "script_served"},
	qemu.UEFIARM64: {"lease pxe", "tftp_probe snponly-arm64.efi", "tftp_served snponly-arm64.efi", "script_served"},
}

// TestChain boots the firmware that no other test of make test boots to the end.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, fw := range []qemu.Firmware{qemu.UEFIROM, qemu.UEFIHTTP, qemu.UEFIARM64} {
		t.Run(string(fw), func(t *testing.T) {
			t.Parallel()
			r := newChainRig(t, fw)
			r.bootChain(t, fw)
			r.wantChain(t, fw)
		})
	}
}

// wantChain holds that the node took as few steps as there can be from power-on to its script: iPXE takes over the firmware's lease,
// where there is one, and fetches nothing twice. BenchmarkChain measures how long that takes.
func (r *rig) wantChain(t *testing.T, fw qemu.Firmware) {
	t.Helper()
	r.wantKinds(t, "node", event.ScriptServed)
	seen := r.events(t, "node")
	if diff := gocmp.Diff(chains[fw], steps(seen)); diff != "" {
		t.Errorf("the steps to the script (-want +got):\n%s\n%s", diff, timeline(seen))
	}
}

// BenchmarkChain reports how long iPXE takes to its script: from its first DISCOVER, or, where it takes over the firmware's lease, from
// having been loaded; on BIOS from its banner, as it unpacks itself before. What it would wait for takes 2 s (a key, or a second, proxy
// DHCP server) or 13 s (an IPv6 router), however fast the machine.
func BenchmarkChain(b *testing.B) {
	const limit = 300 * time.Millisecond
	for _, fw := range slices.Sorted(maps.Keys(chains)) {
		b.Run(string(fw), func(b *testing.B) {
			r := newChainRig(b, fw)
			var best time.Duration
			var l leg
			for b.Loop() {
				l = lastLeg(b, r, r.bootChain(b, fw), l.to)
				took := l.to.Sub(l.from)
				b.Logf("from %s to its script %.3f s", l.how, took.Seconds())
				best = min(cmp.Or(best, took), took)
			}
			b.ReportMetric(best.Seconds(), "s/best")
			if best >= limit {
				b.Errorf("at best %v, want less than %v", best, limit)
			}
		})
	}
}

func newChainRig(t testing.TB, fw qemu.Firmware) *rig {
	t.Helper()
	netns.Need(t, qemu.Needs()...)
	if fw == qemu.UEFIARM64 {
		netns.Need(t, "qemu-system-aarch64")
	}
	return newRig(t, fastLab, map[string]string{"ipxe/stay.ipxe": "#!ipxe\necho SCRIPT of {{.Host.Name}}\nsleep 600\n"})
}

// bootChain starts a machine, and stops it when it has its script.
func (r *rig) bootChain(t testing.TB, fw qemu.Firmware) *qemu.Machine {
	t.Helper()
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: fw, MemoryMiB: 256})
	m.Await(t, patience, "SCRIPT of node")
	m.Kill()
	return m
}

// steps returns the leases and files up to the first script. A repeated one counts once: on a busy machine a client sends again.
func steps(events []event.Event) (all []string) {
	for _, e := range events {
		step := ""
		switch e.Kind {
		case event.DHCPAck:
			step = "lease " + string(e.Client)
		case event.TFTPProbe, event.TFTPServed, event.FirmwareServed:
			step = e.Kind.String() + " " + path.Base(e.Detail)
		case event.ScriptServed:
			step = e.Kind.String()
		}
		if step != "" && (len(all) == 0 || all[len(all)-1] != step) {
			all = append(all, step)
		}
		if e.Kind == event.ScriptServed {
			return all
		}
	}
	return all
}

// A leg is a part of a boot, between two events.
type leg struct {
	from, to time.Time
	how      string
}

// discover is how a leg begins where iPXE takes a lease of its own.
const discover = "DISCOVER"

// lastLeg returns the leg that ends in the first script after since, and begins with iPXE's first DISCOVER, its banner, or
// the end of the program's transfer.
func lastLeg(t testing.TB, r *rig, m *qemu.Machine, since time.Time) (l leg) {
	t.Helper()
	for _, e := range r.events(t, "node") {
		switch {
		case !e.At.After(since):
		case e.Kind == event.DHCPDiscover && e.Client != event.ClientIPXE:
			l = leg{} // firmware: a new boot
		case e.Kind == event.DHCPDiscover && l.from.IsZero():
			l.from, l.how = e.At, discover
		case e.Kind == event.TFTPServed && strings.HasSuffix(e.Detail, ".kpxe"):
			l.from, l.how = m.LastSaid("iPXE 1."), "its banner"
		case (e.Kind == event.TFTPServed || e.Kind == event.FirmwareServed) && strings.HasSuffix(e.Detail, ".efi"):
			l.from, l.how = e.At, "being loaded"
		case e.Kind == event.ScriptServed && !l.from.IsZero():
			l.to = e.At
			return l
		}
	}
	t.Fatalf("no script after a DISCOVER or a program in\n%s", timeline(r.events(t, "node")))
	return l
}
