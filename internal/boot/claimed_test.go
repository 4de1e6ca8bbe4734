package boot_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// byTFTP is where the machine's requests by TFTP come from.
var byTFTP = netip.AddrPortFrom(addr, 2070)

// TestOthersAreMarked: every event of a request in another machine's name is marked as claimed.
func TestOthersAreMarked(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(*rig) error{
		"script": func(r *rig) error { _, err := r.Script(t.Context(), mac, intrud, lab.ScriptName); return err },
		"config": func(r *rig) error { _, err := r.Config(t.Context(), mac, "", "", intrud); return err },
		"done":   func(r *rig) error { return r.Done(t.Context(), mac, "", intrud) },
		"report": func(r *rig) error { return r.Report(t.Context(), mac, "", intrud) },
		"answer": func(r *rig) error { _, err := r.Answer(t.Context(), []lab.MAC{mac}, intrud); return err },
	} {
		r := newRig(t)
		if err := ask(r); err == nil {
			t.Errorf("%s: not refused", what)
		} else if e := r.events[len(r.events)-1]; !e.Claimed || e.MAC != mac {
			t.Errorf("%s: %+v, want an event that it was claimed", what, e)
		}
	}
}

// TestUnverified: a script by TFTP that is refused was asked for by a datagram, which anybody can send; by HTTP, its client has the address.
func TestUnverified(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	write(t, filepath.Join(r.lab.Appliance.Files, "worker.cfg"), "{{")
	for by, ask := range map[string]func() (*boot.Script, error){
		"tftp": func() (*boot.Script, error) { return r.ByDatagram().Script(t.Context(), mac, byTFTP, lab.ScriptName) },
		"http": func() (*boot.Script, error) { return r.Service.Script(t.Context(), mac, addr, lab.ScriptName) },
	} {
		_, err := ask()
		if e := r.events[len(r.events)-1]; err == nil || e.Kind != event.ScriptRefused || e.Claimed || e.Unverified != (by == "tftp") {
			t.Errorf("by %s: %v, %+v", by, err, e)
		}
	}
	script, err := newRig(t).ByDatagram().Script(t.Context(), mac, byTFTP, lab.ScriptName)
	if err != nil || len(script.Body) == 0 {
		t.Errorf("by TFTP: %v, %v", script, err)
	}
}

// TestClaimed: a refusal reports whether the request came from the machine's address or from another.
func TestClaimed(t *testing.T) {
	t.Parallel()
	leased := netip.MustParseAddr("192.168.16.200")
	for _, tt := range []struct {
		name string
		held netip.Addr // by the machine
		from netip.Addr
		mac  lab.MAC
		want bool
	}{
		{"from its own address", addr, addr, mac, false},
		{"from what is reserved for it", netip.Addr{}, addr, mac, false},
		{"from another's address", addr, intrud, mac, true},
		{"before it has one", netip.Addr{}, intrud, mac, true},
		{"pool machine, its own address", leased, leased, lab.MAC{2}, false},
		{"pool machine without a lease", netip.Addr{}, intrud, lab.MAC{2}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leases = map[lab.MAC]netip.Addr{}
			if tt.held.IsValid() {
				r.leases[tt.mac] = tt.held
			}
			if _, err := r.Config(t.Context(), tt.mac, "guess", "worker.cfg", tt.from); err == nil {
				t.Fatal("a guess at a token is not refused")
			}
			if e := r.events[len(r.events)-1]; e.Kind != event.ConfigRefused || e.Claimed != tt.want {
				t.Errorf("claimed %v, want %v: %+v", e.Claimed, tt.want, e)
			}
		})
	}
}

// TestFilesOfOthers: a file that another machine fetches from the machine's address is not the machine's, where the MAC can be known.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	thief := lab.MAC{2, 0, 0, 0, 0, 0x66}
	foreign := neighbour.Found{User: neighbour.Foreign, MAC: thief}
	const by = "asked for by 02:00:00:00:00:66, which is no NIC of "
	for _, tt := range []struct {
		name  string
		found neighbour.Found
		e     event.Event
		want  string // the error; empty: not marked
	}{
		{"its own", neighbour.Found{User: neighbour.Own, MAC: mac}, event.Event{Kind: event.FileMissing}, ""},
		{"behind a router", neighbour.Found{}, event.Event{Kind: event.FileMissing}, ""},
		{"not known any more", neighbour.Found{User: neighbour.None}, event.Event{Kind: event.FileMissing}, ""},
		{"missing", foreign, event.Event{Kind: event.FileMissing, Err: "file not found", Reason: event.NotFound}, by + "worker-0: file not found"},
		{"served", foreign, event.Event{Kind: event.FileServed}, by + "worker-0"},
		{"by TFTP", foreign, event.Event{Kind: event.TFTPServed}, by + "worker-0"},
		{"in the name of a machine of a pool", foreign, event.Event{Kind: event.TFTPRefused, MAC: lab.MAC{2}}, by + "02-00-00-00-00-00"},
		{"a script, which was refused to others", foreign, event.Event{Kind: event.ScriptServed}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.found = tt.found
			e := tt.e
			e.MAC, e.Addr = cmp.Or(e.MAC, mac), addr
			if e.MAC != mac {
				e.Addr = netip.MustParseAddr("192.168.16.200")
				r.leases[e.MAC] = e.Addr
			}
			r.MarkClaimed(r.table, &e)
			if marked := tt.want != ""; e.Claimed != marked || marked && (e.Err != tt.want || e.Reason != event.OtherMachine) {
				t.Errorf("%+v, want error %q", e, tt.want)
			}
		})
	}
}

// TestNeighbours: what is known of the MAC behind an address decides every request in a machine's name, from the right address too.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	thief := lab.MAC{2, 0, 0, 0, 0, 0x66}
	for _, tt := range []struct {
		name   string
		found  neighbour.Found
		dhcp   string
		status int // 0: answered
		kind   event.Kind
	}{
		{"its own", neighbour.Found{User: neighbour.Own, MAC: mac}, "server", 0, 0},
		{"behind a router", neighbour.Found{}, "server", 0, 0},
		{"another machine at its address", neighbour.Found{User: neighbour.Foreign, MAC: thief}, "server", 403, event.AddressConflict},
		{"another machine beside it", neighbour.Found{User: neighbour.Foreign, MAC: thief, Both: true}, "server", 503, event.AddressConflict},
		{"nobody", neighbour.Found{User: neighbour.None}, "server", 503, event.ConfigRefused},
		{"its own, leased by another server", neighbour.Found{User: neighbour.Own, MAC: mac}, "proxy", 0, 0},
		{"another machine, leased by another server", neighbour.Found{User: neighbour.Foreign, MAC: thief}, "proxy", 403, event.ConfigRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "files", "worker.cfg"), "x")
			text := strings.Replace(labFile, "address: 192.168.16.1\n", "address: 192.168.16.1\n    dhcp: "+tt.dhcp+"\n", 1)
			if tt.dhcp == "proxy" {
				text = strings.Replace(text, "    pools: {pooleds: {range: 192.168.16.200-192.168.16.210, profile: live}}\n", "", 1)
			}
			r := rigOf(t, nil, nil)
			r.lab, r.table = tableOf(t, dir, text)
			token := r.token(t)
			r.found = tt.found
			for _, request := range []struct {
				what string
				ask  func() error
			}{
				{"script", func() error { _, err := r.Script(t.Context(), mac, addr, lab.ScriptName); return err }},
				{"config", func() error { _, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); return err }},
				{"done", func() error { return r.Done(t.Context(), mac, token, addr) }},
				{"report", func() error { return r.Report(t.Context(), mac, "manufacturer=x", addr) }},
			} {
				what, before := request.what, len(r.asked)
				err := request.ask()
				if len(r.asked) == before || !slices.Contains(r.asked[before], mac) {
					t.Errorf("%s: asked for %v", what, r.asked[before:])
				}
				if status := statusOf(err); status != tt.status {
					t.Errorf("%s: %v, want status %d", what, err, tt.status)
				}
				if err == nil {
					continue
				}
				e := r.events[len(r.events)-1]
				foreign, forged := tt.found.User == neighbour.Foreign, (what == "script" || what == "report") && tt.found.User == neighbour.None
				if e.Claimed != (foreign || forged) || foreign && !strings.Contains(e.Err, thief.String()) {
					t.Errorf("%s: event %+v", what, e)
				}
				if (what == "config" || what == "done") && e.Kind != tt.kind {
					t.Errorf("%s: event %v, want %v", what, e.Kind, tt.kind)
				}
			}
		})
	}
}

// TestSilentMachine: where no machine answers ARP, the kernel's entry alone is no evidence: anybody can name the machine's MAC in an ARP packet
// while it is off. Nobody gets its script, so that no boot begins, however often somebody asks; nor its document, nor "done".
func TestSilentMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "worker.cfg"), "x")
	r := rigOf(t, nil, nil)
	r.lab, r.table = tableOf(t, dir, labFile)
	token := r.token(t)
	before := r.installs.Status(r.lab.Host("worker-0"))
	r.found = neighbour.Found{User: neighbour.Own, MAC: mac, Silent: true}
	for what, ask := range map[string]func() error{
		"script": func() error { _, err := r.Script(t.Context(), mac, addr, lab.ScriptName); return err },
		"script by TFTP": func() error {
			_, err := r.ByDatagram().Script(t.Context(), mac, byTFTP, lab.ScriptName)
			return err
		},
		"document": func() error { _, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); return err },
		"done":     func() error { return r.Done(t.Context(), mac, token, addr) },
	} {
		if err := ask(); statusOf(err) != 503 {
			t.Errorf("%s: %v, want status 503", what, err)
		}
		if e := r.events[len(r.events)-1]; e.Reason != event.Silent || e.Claimed != strings.HasPrefix(what, "script") {
			t.Errorf("%s: event %+v", what, e)
		}
	}
	if diff := gocmp.Diff(before, r.installs.Status(r.lab.Host("worker-0"))); diff != "" {
		t.Errorf("the host's state (-want +got):\n%s", diff)
	}
}

// TestTakenMeanwhile: a machine that takes the address while the script is on its way, and acknowledges it, begins no boot.
func TestTakenMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	script, err := r.Service.Script(t.Context(), mac, addr, lab.ScriptName)
	if err != nil {
		t.Fatal(err)
	}
	r.found = neighbour.Found{User: neighbour.Foreign, MAC: lab.MAC{2, 0, 0, 0, 0, 0x66}}
	if err := script.Received(t.Context()); statusOf(err) != 403 || r.count(event.InstallBooting)+r.count(event.ScriptServed) != 0 || r.count(event.AddressConflict) != 1 {
		t.Errorf("%v, events %v", err, r.events)
	}
}

// TestAcknowledged: an acknowledged script by TFTP begins a boot if the frame of its request came from the machine. Another machine's changes
// nothing, however often, and the token of the installer that runs stays. Behind a router the boot begins when its token is used.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	thief := lab.MAC{2, 0, 0, 0, 0, 0x66}
	for _, tt := range []struct {
		name   string
		sender neighbour.Found
		status int // of Received; 0: no error
		begins bool
	}{
		{"the machine's own", neighbour.Found{User: neighbour.Own, MAC: mac}, 0, true},
		{"another machine's", neighbour.Found{User: neighbour.Foreign, MAC: thief}, 403, false},
		{"not seen", neighbour.Found{User: neighbour.None}, 403, false},
		{"behind a router", neighbour.Found{User: neighbour.Elsewhere}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			h, old := r.lab.Host("worker-0"), r.token(t)
			doc, err := r.Config(t.Context(), mac, old, "worker.cfg", addr)
			if err != nil {
				t.Fatal(err)
			}
			err = doc.Read(t.Context(), 0)
			doc.Release()
			if before := r.installs.Status(h); err != nil || before.State != install.Installing {
				t.Fatalf("%v, %+v", err, before)
			}
			r.found, r.sender = neighbour.Found{User: neighbour.Own, MAC: mac}, tt.sender
			var script *boot.Script
			for range 2 * bootloop.MaxScripts {
				if script, err = r.ByDatagram().Script(t.Context(), mac, byTFTP, lab.ScriptName); err != nil {
					break
				}
				if err = script.Received(t.Context()); statusOf(err) != tt.status {
					t.Fatalf("received: %v, want status %d", err, tt.status)
				}
				if tt.begins {
					break
				}
				if tt.sender.User == neighbour.Elsewhere && r.loops.ScriptLoops(mac) {
					break // a loop behind a router
				}
			}
			after := r.installs.Status(h)
			if began := after.Attempts == 2; began != tt.begins || after.Held || (after.State == install.Booting) != tt.begins {
				t.Errorf("after it: %+v, want a boot: %t", after, tt.begins)
			}
			if held := r.loops.ScriptLoops(mac); held != (tt.sender.User == neighbour.Elsewhere) {
				t.Errorf("in a loop: %t", held)
			}
			if e := r.events[len(r.events)-1]; tt.status != 0 && !e.Claimed {
				t.Errorf("event %+v", e)
			}
			if err := r.Done(t.Context(), mac, old, addr); (err == nil) == tt.begins {
				t.Errorf("done with the token of the install: %v", err)
			}
		})
	}
}

// TestClientGone: a request whose client goes away while the store works is no refusal.
func TestClientGone(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for what, ask := range map[string]func(r *rig, token string) error{
		"script": func(r *rig, _ string) error { _, err := r.Service.Script(gone, mac, addr, lab.ScriptName); return err },
		"done":   func(r *rig, token string) error { return r.Done(gone, mac, token, addr) },
	} {
		r, token := newRig(t), ""
		if what == "done" {
			token = r.token(t)
		}
		before := len(r.events)
		if err := ask(r, token); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want that the client went away", what, err)
		}
		if len(r.events) != before {
			t.Errorf("%s: %+v", what, r.events[before:])
		}
	}
}

// statusOf returns the status of a refusal; 0: none.
func statusOf(err error) int {
	if refusal, ok := errors.AsType[*boot.Refusal](err); ok {
		return refusal.Status
	}
	return 0
}

// TestNeighboursOfAllNICs: a request may come by any NIC of the machine, as Linux answers ARP on each for the addresses of all.
func TestNeighboursOfAllNICs(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
domain: lab.test
networks: {n: {subnet: 192.168.16.0/24, interface: br0, address: 192.168.16.1}, second: {subnet: 172.22.0.0/24, address: 172.22.0.1}}
profiles: {live: {kernel: k, initrd: [i]}}
hosts:
  two: {profile: live, nics: [{mac: "52:54:00:00:09:01", ip: 172.22.0.31}, {mac: "52:54:00:00:09:02", ip: 192.168.16.31, boot: true}]}
`
	l, err := load.Parse(filepath.Join(t.TempDir(), "lab.yaml"), []byte(text), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	r, boots := rigOf(t, l, table), lab.MAC{0x52, 0x54, 0, 0, 9, 2}
	if _, err := r.Script(t.Context(), boots, netip.MustParseAddr("192.168.16.31"), lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	if len(r.asked) == 0 || !slices.Equal(r.asked[0], []lab.MAC{boots, {0x52, 0x54, 0, 0, 9, 1}}) {
		t.Errorf("asked for %v", r.asked)
	}
}

// TestFurtherNICBootsNothing: it gets neither the installer nor a document, and begins no boot; the hardware report of its machine may come
// by any NIC.
func TestFurtherNICBootsNothing(t *testing.T) {
	t.Parallel()
	l, table := tableOf(t, t.TempDir(), `
version: 1
domain: lab.test
networks:
  n: {subnet: 192.168.16.0/24, interface: br0, address: 192.168.16.1, pools: {any: {range: 192.168.16.100-192.168.16.110, profile: live}}}
  second: {subnet: 172.22.0.0/24, address: 172.22.0.1, interface: br1}
profiles: {live: {kernel: k, install: once, install_to: /dev/vda, args: ["c={{.ConfigURL}}"], config: "{{.Host.MAC.Hyphens}}.cfg"}}
hosts:
  two: {profile: live, nics: [{mac: "52:54:00:00:09:01", ip: 172.22.0.31, boot: true}, {mac: "52:54:00:00:09:02", network: n}]}
`)
	r, boots, further, at := rigOf(t, l, table), lab.MAC{0x52, 0x54, 0, 0, 9, 1}, lab.MAC{0x52, 0x54, 0, 0, 9, 2}, netip.MustParseAddr("192.168.16.100")
	r.leases[further] = at
	script, err := r.Script(t.Context(), further, at, lab.ScriptName)
	if err != nil || !strings.Contains(string(script), "does not boot from this NIC") || strings.Contains(string(script), "kernel") {
		t.Errorf("script %v:\n%s", err, script)
	}
	if state := r.installs.Status(l.Host("two")).State; state != install.Armed {
		t.Errorf("two is %s", state)
	}
	if _, err := r.Script(t.Context(), boots, netip.MustParseAddr("172.22.0.31"), lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	token, err := r.installs.Token(t.Context(), l.Host("two"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Config(t.Context(), further, token, "", at); statusOf(err) != http.StatusForbidden || !strings.Contains(err.Error(), "does not boot from this NIC") {
		t.Errorf("document: %v", err)
	}
	r.asked = nil
	if err := r.Report(t.Context(), further, "", at); err != nil || len(r.asked) != 1 || !slices.Equal(r.asked[0], []lab.MAC{boots, further}) {
		t.Errorf("report: %v, asked for %v", err, r.asked)
	}
}

// TestReportFromOwnAddress: a machine reports from each address that it gets its script from: that of another NIC, or an IPv6 address.
func TestReportFromOwnAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "lab.yaml"), `version: 1
domain: lab.example
networks:
  n: {subnet: 10.0.0.0/24, subnet6: 'fd00:16::/64', interface: br0, address: 10.0.0.1}
  m: {subnet: 10.1.0.0/24, interface: br1, address: 10.1.0.1}
profiles: {p: {kernel: k}}
hosts:
  w: {profile: p, nics: [{mac: '52:54:00:00:00:01', ip: 10.0.0.11, ip6: 'fd00:16::11', network: n, boot: true}, {mac: '52:54:00:00:00:02', ip: 10.1.0.11, network: m}]}
`)
	l, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	r := rigOf(t, l, table)
	boots := lab.MAC{0x52, 0x54, 0, 0, 0, 1}
	for from, refused := range map[string]string{
		"10.0.0.11": "", "10.1.0.11": "", "fd00:16::11": "",
		"10.0.0.12": "w holds 10.0.0.11", "fd00:16::12": "w holds fd00:16::11", "10.9.0.1": "no network of the lab",
	} {
		_, script := r.Script(t.Context(), boots, netip.MustParseAddr(from), lab.ScriptName)
		report := r.Report(t.Context(), boots, "manufacturer=x", netip.MustParseAddr(from))
		if (script == nil) != (refused == "") {
			t.Errorf("script from %s: %v", from, script)
		}
		if (report == nil) != (refused == "") || report != nil && !strings.Contains(report.Error(), refused) {
			t.Errorf("report from %s: %v, want %q", from, report, refused)
		}
	}
}

// TestNeighbourByIPv6: the request of a neighbour from an address that the machine does not hold is that neighbour's, and no failure of the
// machine's boot. From the machine's own MAC it is the machine's, whose IPv6 addresses DHCP does not assign.
func TestNeighbourByIPv6(t *testing.T) {
	t.Parallel()
	from := netip.MustParseAddr("fd00:16::77")
	for user, others := range map[neighbour.User]bool{neighbour.Foreign: true, neighbour.Own: false} {
		r := newRig(t)
		r.found = neighbour.Found{User: user, MAC: lab.MAC{2, 9}}
		if _, err := r.Config(t.Context(), mac, "token", "", from); statusOf(err) != http.StatusForbidden {
			t.Errorf("user %v: %v, want a refusal", user, err)
		}
		if e := r.events[len(r.events)-1]; !e.Claimed || e.Forgeable() != others {
			t.Errorf("user %v: %+v, want it to be of another machine: %v", user, e, others)
		}
	}
}

// TestReservationWhileLeased: a machine that leased an address before the lab file reserved another for it reports from either, until it
// renews.
func TestReservationWhileLeased(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := netip.MustParseAddr("192.168.16.201")
	r.leases[mac] = before
	for _, from := range []netip.Addr{before, addr} {
		if err := r.Report(t.Context(), mac, "manufacturer=x", from); err != nil {
			t.Errorf("a report from %s: %v", from, err)
		}
		if _, err := r.Script(t.Context(), mac, from, "boot.ipxe"); err != nil {
			t.Errorf("its script from %s: %v", from, err)
		}
	}
	if _, err := r.Script(t.Context(), mac, intrud, "boot.ipxe"); err == nil || !strings.Contains(err.Error(), "holds "+addr.String()) {
		t.Errorf("its script from %s: %v, want a refusal that names the reserved address", intrud, err)
	}
}
