package timeline_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/golden"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var update = flag.Bool("update", false, "rewrite golden files")

var (
	mac   = lab.MAC{0x52, 0x54, 0, 0, 2, 1}
	epoch = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
)

// A rig is a recorder, and a bus that feeds it by a clock that the test sets.
type rig struct {
	*timeline.Recorder
	store    store.Store
	registry *prometheus.Registry
	now      time.Time
	seq      uint64
}

func newRig(t testing.TB, cfg timeline.Config, s store.Store) *rig {
	t.Helper()
	r := &rig{store: s, registry: prometheus.NewRegistry(), now: epoch}
	var err error
	r.Recorder, err = timeline.Open(t.Context(), cfg, timeline.Deps{Store: s, Log: slog.New(slog.DiscardHandler), Registerer: r.registry})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// record records an event of host after a while.
func (r *rig) record(after time.Duration, host string, kind event.Kind, detail string) {
	r.now = r.now.Add(after)
	r.seq++
	r.Record(event.Event{Seq: r.seq, At: r.now, Kind: kind, Host: host, MAC: mac, Detail: detail, Client: clientOf(kind, detail), Reason: reasonOf(kind, detail)})
}

// reasonOf returns the reason that the detail of a refused document is.
func reasonOf(kind event.Kind, detail string) event.Reason {
	if kind != event.ConfigRefused || event.Reason(detail).Help() == "" {
		return ""
	}
	return event.Reason(detail)
}

// clientOf returns the DHCP client that the detail of these tests begins with.
func clientOf(kind event.Kind, detail string) event.Client {
	if kind.Stage() != event.StageAddress {
		return ""
	}
	client, _, _ := strings.Cut(detail, " ")
	return event.Client(client)
}

// save runs the writer until everything is saved.
func (r *rig) save(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) boots(t testing.TB, key string) []timeline.Boot {
	t.Helper()
	boots, err := r.Boots(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return boots
}

func (r *rig) dropped(t testing.TB, queue string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == timeline.MetricDropped && m.GetLabel()[0].GetValue() == queue {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric for %s", queue)
	return 0
}

// A step is one event of a boot.
type step struct {
	after  time.Duration
	kind   event.Kind
	detail string
}

// install is a whole PXE installation up to the call that says it is done.
var install = []step{
	{0, event.DHCPDiscover, "pxe arch 7"},
	{2 * time.Millisecond, event.DHCPOffer, "pxe boot/52-54-00-00-02-01/ipxe.efi"},
	{4 * time.Second, event.DHCPAck, "pxe boot/52-54-00-00-02-01/ipxe.efi"},
	{20 * time.Millisecond, event.TFTPProbe, "boot/52-54-00-00-02-01/ipxe.efi"},
	{time.Second, event.TFTPServed, "boot/52-54-00-00-02-01/ipxe.efi"},
	{2 * time.Second, event.DHCPDiscover, "ipxe arch 7"},
	{time.Millisecond, event.DHCPAck, "ipxe boot.ipxe"},
	{time.Second, event.InstallBooting, ""},
	{0, event.ScriptServed, "autoexec.ipxe: install"},
	{time.Second, event.ScriptServed, "boot.ipxe: install"},
	{3 * time.Second, event.FileServed, "images/vmlinuz"},
	{9 * time.Second, event.FileServed, "images/initrd"},
	{20 * time.Second, event.DHCPDiscover, "os"},
	{time.Millisecond, event.DHCPAck, "os"},
	{5 * time.Second, event.ConfigServed, "master.ign"},
	{0, event.InstallStarted, ""},
	{90 * time.Second, event.InstallDone, ""},
}

func TestGrouping(t *testing.T) {
	t.Parallel()
	firmware := []step{{0, event.DHCPDiscover, "pxe arch 7"}, {time.Millisecond, event.DHCPAck, "pxe f"}, {time.Second, event.TFTPServed, "f"}}
	again := []step{{time.Second, event.DHCPDiscover, "ipxe arch 7"}, {0, event.ScriptServed, "boot.ipxe: install"}, {0, event.FileServed, "k"}, {0, event.DHCPAck, "os"}}
	refused := step{time.Second, event.ConfigRefused, "not_rendered"}
	tests := []struct {
		name  string
		steps [][]step
		want  []string // of each boot: events, stage, outcome
	}{
		{"an installation", [][]step{install}, []string{"17 install done"}},
		{"an installation, then its disk", [][]step{install, {{30 * time.Second, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}},
			[]string{"19 install done"}},
		{"an installation, its disk, then the network at once", [][]step{append(install[:len(install):len(install)], step{30 * time.Second, event.DHCPDiscover, "os"}, step{0, event.DHCPAck, "os"}),
			{{time.Second, event.DHCPDiscover, "pxe arch 7"}}}, []string{"19 install done", "1 address booting"}},
		{"installed, and its system asks again and requests a file", [][]step{install, {{time.Hour, event.DHCPDiscover, "os"}, {0, event.DHCPOffer, "os"}, {0, event.DHCPAck, "os"}, {time.Minute, event.FileMissing, "files/nosuch"}}},
			[]string{"21 install done"}},
		{"sent to its disk, whose system asks, then a script", [][]step{{{0, event.DHCPDiscover, "pxe arch 7"}, {0, event.InstallLocalBoot, ""}, {0, event.ScriptServed, "boot.ipxe: local boot"}, {time.Minute, event.DHCPDiscover, "os"}},
			{{time.Minute, event.ScriptServed, "boot.ipxe: install"}}}, []string{"4 script done", "1 script booting"}},
		{"installed, armed again, then its disk", [][]step{install, {{time.Hour, event.InstallArmed, ""}, {0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}},
			[]string{"17 install done", "3 address booting"}},
		{"marked as installed, and its system asks and requests a file", [][]step{{{0, event.InstallDone, "marked by an admin"}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}, {time.Hour, event.DHCPDiscover, "os"}, {0, event.FileMissing, "files/nosuch"}},
			{{time.Minute, event.DHCPDiscover, "pxe arch 7"}}}, []string{"5  none", "1 address booting"}},
		{"marked as installed, armed, then its disk", [][]step{{{0, event.InstallDone, "marked by an admin"}, {0, event.InstallArmed, ""}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}}, []string{"4 address booting"}},
		{"a first lease of a system, which may be about to be installed", [][]step{{{0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}, {time.Second, event.ScriptServed, "boot.ipxe: install"}}}, []string{"3 script booting"}},
		{"its own system has an address", [][]step{{{0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}}, []string{"2 address done"}},
		{"its own system renews its lease, is checked, and requests a file", [][]step{{{0, event.DHCPAck, "os"}, {0, event.BackendUp, "web"}, {time.Minute, event.FileMissing, "files/nosuch"}}}, []string{"3 address done"}},
		{"its own system, after its firmware found nothing to boot", [][]step{{{0, event.DHCPDiscover, "pxe"}, {0, event.DHCPAck, "pxe"}, {0, event.TFTPRefused, "f"}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}}, []string{"5 firmware done"}},
		{"its own system has an address, then its firmware asks", [][]step{{{0, event.DHCPAck, "os"}}, {{time.Second, event.DHCPDiscover, "pxe"}}}, []string{"1 address done", "1 address booting"}},
		{"its own system has an address, then it is armed, and its firmware asks", [][]step{{{0, event.DHCPAck, "os"}}, {{time.Second, event.InstallArmed, ""}, {time.Second, event.DHCPDiscover, "pxe"}}}, []string{"1 address done", "2 address booting"}},
		{"firmware that asks as a system does, and is refused its boot program", [][]step{{{0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}, {0, event.TFTPRefused, "f"}}}, []string{"3 firmware failed"}},
		{"a system that installs from other media", [][]step{{{0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}, {0, event.InstallStarted, ""}, {0, event.ConfigServed, "c"}}}, []string{"4 install booting"}},
		{"armed, and its firmware asks twice before its own system starts", [][]step{{{0, event.InstallArmed, ""}, {0, event.DHCPDiscover, "pxe"}}, {{time.Hour, event.DHCPDiscover, "pxe"}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}}, []string{"2 address booting", "3 address booting"}},
		{"armed, and its system renews its lease without asking", [][]step{{{0, event.InstallArmed, ""}, {0, event.DHCPAck, "os"}}, {{time.Minute, event.DHCPDiscover, "pxe"}}}, []string{"2 address done", "1 address booting"}},
		{"armed, and its system asks for an address", [][]step{{{0, event.InstallArmed, ""}, {0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}}, []string{"3 address booting"}},
		{"installed, and its system requests files", [][]step{install, {{time.Minute, event.ScriptRefused, "boot.ipxe"}, {0, event.FileMissing, "files/nosuch"}}}, []string{"19 install done"}},
		{"marked as installed, and its system requests a file", [][]step{{{0, event.InstallDone, "marked by an admin"}, {time.Minute, event.FileMissing, "files/nosuch"}}}, []string{"2  none"}},
		{"an installation, then local boot", [][]step{install, {{30 * time.Second, event.DHCPDiscover, "pxe arch 7"}, {0, event.DHCPAck, "pxe"},
			{0, event.InstallLocalBoot, ""}, {10 * time.Second, event.DHCPDiscover, "os"}, {time.Minute, event.BackendUp, "api"}}},
			[]string{"17 install done", "5 script done"}},
		{"a check while it boots", [][]step{{{0, event.DHCPDiscover, "pxe"}, {0, event.BackendUp, "api"}, {time.Second, event.BackendDown, "api"}}}, []string{"3 address booting"}},
		{"a check after it has loaded its system", [][]step{{{0, event.ScriptServed, "boot.ipxe"}, {0, event.FileServed, "k"}, {time.Minute, event.BackendUp, "api"}}}, []string{"3 files done"}},
		{"marked as installed, then its disk", [][]step{{{0, event.InstallArmed, ""}, {0, event.InstallDone, "marked by an admin"}},
			{{9 * time.Minute, event.DHCPDiscover, "pxe arch 7"}, {0, event.DHCPAck, "pxe"}, {0, event.InstallLocalBoot, ""}, {0, event.ScriptServed, "boot.ipxe: local boot"}}},
			[]string{"2  none", "4 script done"}},
		{"installed, as its next boot shows", [][]step{install[:len(install)-1], {{5 * time.Minute, event.DHCPDiscover, "pxe arch 7"}, {0, event.TFTPServed, "f"},
			{0, event.DHCPDiscover, "ipxe"}, {0, event.InstallDone, "it boots again"}, {0, event.InstallLocalBoot, ""}, {0, event.ScriptServed, "boot.ipxe: local boot"},
			{10 * time.Second, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}}},
			[]string{"16 install booting", "8 install done"}},
		{"counts as installed", [][]step{append(install[:len(install)-1:len(install)-1], step{2 * time.Hour, event.InstallTimeout, ""})}, []string{"17 install booting"}},
		{"counts as installed, and its system renews its lease", [][]step{append(install[:len(install)-1:len(install)-1], step{2 * time.Hour, event.InstallTimeout, ""}, step{time.Hour, event.DHCPAck, "os"})},
			[]string{"18 install done"}},
		{"firmware repeats itself", [][]step{{{0, event.DHCPDiscover, "pxe"}, {4 * time.Second, event.DHCPDiscover, "pxe"},
			{8 * time.Second, event.DHCPDiscover, "pxe"}, {32 * time.Second, event.DHCPDiscover, "pxe"}}}, []string{"4 address booting"}},
		{"firmware tries again after a pause", [][]step{{{0, event.DHCPDiscover, "pxe"}, {2 * time.Minute, event.DHCPDiscover, "pxe"}}},
			[]string{"1 address booting", "1 address booting"}},
		{"reset in the middle", [][]step{firmware, {{3 * time.Second, event.DHCPDiscover, "pxe arch 7"}}}, []string{"3 firmware booting", "1 address booting"}},
		{"iPXE in ROM", [][]step{
			{{0, event.DHCPDiscover, "ipxe"}, {0, event.ScriptServed, "boot.ipxe"}, {0, event.FileServed, "k"}},
			{{10 * time.Second, event.DHCPDiscover, "ipxe"}, {0, event.ScriptServed, "boot.ipxe"}}}, []string{"3 files booting", "2 script booting"}},
		{"another script without asking", [][]step{{{0, event.ScriptServed, "boot.ipxe"}, {0, event.FileServed, "k"}, {time.Minute, event.ScriptServed, "boot.ipxe"}}},
			[]string{"2 files booting", "1 script booting"}},
		{"live system", [][]step{{{0, event.ScriptServed, "boot.ipxe"}, {0, event.FileServed, "k"}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"},
			{6 * time.Hour, event.DHCPAck, "os"}}}, []string{"5 files done"}},
		{"a script that loads its system elsewhere", [][]step{append(again[:2:2], again[3])}, []string{"3 script done"}},
		{"a script whose file is missing, then a system", [][]step{append(again[:2:2], step{0, event.FileMissing, "k"}, again[3])}, []string{"4 files booting"}},
		{"live system whose document is refused", [][]step{append(again[:4:4], refused, step{time.Minute, event.DHCPAck, "os"})}, []string{"6 config failed"}},
		{"live system whose document is refused at first", [][]step{append(again[:4:4], refused, step{time.Minute, event.ConfigServed, "live.ign"})}, []string{"6 config done"}},
		{"live system that has its document, and a program that asks for another", [][]step{append(again[:4:4], step{time.Second, event.ConfigServed, "meta-data"}, refused)}, []string{"6 config done"}},
		{"armed, then booted much later", [][]step{firmware, {{time.Hour, event.InstallArmed, ""}, {time.Hour, event.DHCPDiscover, "pxe"}}},
			[]string{"3 firmware booting", "2 address booting"}},
		{"virtual machine", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}, {time.Second, event.DHCPDiscover, "pxe"}, {0, event.TFTPServed, "f"}},
			{{time.Minute, event.VMStarted, "kvm1"}}}, []string{"4 firmware booting", "1 machine booting"}},
		{"virtual machine that is made again", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}, {time.Second, event.DHCPDiscover, "pxe"}, {0, event.TFTPServed, "f"}, {time.Hour, event.VMDeleted, "kvm1"}},
			{{time.Second, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}, {time.Second, event.DHCPDiscover, "pxe"}}}, []string{"5 firmware ended", "3 address booting"}},
		{"made again before it asked", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}, {0, event.VMDeleted, "kvm1"}},
			{{time.Second, event.InstallArmed, ""}, {0, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}}}, []string{"3 machine ended", "3 machine booting"}},
		{"made again after virsh undefine", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMStarted, "kvm1"}}, {{time.Second, event.VMCreated, "kvm1"}}}, []string{"2 machine booting", "1 machine none"}},
		{"bare metal, after its virtual machine was deleted", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMDeleted, "kvm1"}}, {{time.Second, event.DHCPDiscover, "pxe"}}}, []string{"2 machine none", "1 address booting"}},
		{"virtual machine that is not made", [][]step{{{0, event.VMFailed, "apply on kvm1"}}}, []string{"1 machine none"}},
		{"virtual machine that does not start", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMFailed, "start on kvm1"}}}, []string{"2 machine none"}},
		{"virtual machine that starts in the end", [][]step{{{0, event.VMFailed, "apply on kvm1"}, {0, event.VMCreated, "kvm1"}, {0, event.VMFailed, "start on kvm1"}, {0, event.VMStarted, "kvm1"}}}, []string{"4 machine booting"}},
		{"virtual machine that virsh starts in the end", [][]step{{{0, event.VMCreated, "kvm1"}, {0, event.VMFailed, "start on kvm1"}, {time.Hour, event.DHCPDiscover, "pxe"}}}, []string{"3 address booting"}},
		{"virtual machine that cannot be changed while it boots", [][]step{{{0, event.VMStarted, "kvm1"}, {0, event.VMFailed, "apply on kvm1"}}}, []string{"2 machine booting"}},
		{"virtual machine that cannot be changed while it serves", [][]step{install, {{time.Hour, event.VMFailed, "apply on kvm1"}}}, []string{"18 install done"}},
		{"fails, then goes on", [][]step{{{0, event.DHCPDiscover, "pxe"}, {0, event.TFTPRefused, "grub.cfg"}, {0, event.TFTPServed, "f"}}}, []string{"3 firmware booting"}},
		{"its document is refused, and its system asks for an address", [][]step{install[:14], {{time.Second, event.ConfigRefused, "master.ign"}, {time.Minute, event.DHCPDiscover, "os"}, {0, event.DHCPOffer, "os"}, {0, event.DHCPAck, "os"}}}, []string{"18 config failed"}},
		{"its document is refused, and it boots again with the same token", [][]step{append(install[:14:14], step{time.Second, event.ConfigRefused, "master.ign"}), again,
			append(again[:4:4], step{time.Second, event.ConfigRefused, "master.ign"})}, []string{"15 config failed", "4 files booting", "5 config failed"}},
		{"its document is refused, it is armed, and its system has an address", [][]step{append(install[:14:14], step{time.Second, event.ConfigRefused, "master.ign"}),
			append([]step{{0, event.InstallArmed, ""}, {0, event.InstallDone, "marked by an admin"}}, again...)}, []string{"15 config failed", "2  none", "4 files done"}},
		{"it reads its document twice, and its system asks for an address", [][]step{install[:16], {{time.Second, event.ConfigRefused, "master.ign"}, {time.Minute, event.DHCPAck, "os"}}}, []string{"18 install booting"}},
		{"fails", [][]step{firmware, {{0, event.TFTPFailed, "f"}}}, []string{"4 firmware failed"}},
		{"an error after it was done", [][]step{install, {{time.Second, event.ConfigRefused, "second reader"}, {time.Hour, event.BackendDown, "api"}}}, []string{"19 install done"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, timeline.Config{}, storetest.Memory())
			for _, part := range tt.steps {
				for _, s := range part {
					r.record(s.after, "master-0", s.kind, s.detail)
				}
			}
			var got []string
			for _, b := range r.boots(t, "master-0") {
				got = append(got, fmt.Sprintf("%d %s %s", len(b.Events), b.Stage, b.Outcome))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("boots (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckIsNoBoot: what a balancer sees of a machine that never booted is no boot of it, and neither the last that the machine did nor
// the end of a boot.
func TestCheckIsNoBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	for _, k := range []event.Kind{event.BackendDown, event.BackendUp, event.BackendDrained, event.BackendReady} {
		r.record(time.Second, "master-0", k, "api")
	}
	if s, ok := r.Last("master-0"); ok || len(r.boots(t, "master-0")) > 0 {
		t.Errorf("checks alone make the boots %+v, and %+v", r.boots(t, "master-0"), s)
	}
	r.record(time.Second, "master-0", event.DHCPDiscover, "pxe arch 7")
	r.record(2800*time.Millisecond, "master-0", event.InstallLocalBoot, "")
	r.record(time.Minute, "master-0", event.BackendDown, "api")
	r.record(time.Second, "master-0", event.BackendUp, "api")
	if s, _ := r.Last("master-0"); !s.Served {
		t.Error("a machine that passed a check did not serve")
	}
	boots := r.boots(t, "master-0")
	if len(boots) != 1 || len(boots[0].Events) != 4 || boots[0].Ended.Sub(boots[0].Started) != 2800*time.Millisecond || boots[0].Outcome != timeline.Done {
		t.Errorf("a boot of 2.8 s with checks is %+v", boots)
	}
	if s, _ := r.Last("master-0"); s.Last.Kind != event.InstallLocalBoot || s.Stage != event.StageScript {
		t.Errorf("the last that the machine did is %+v", s)
	}
}

// TestAdminIsNoMachine: an admin who releases a lease, or marks a machine as installed, shows nothing of what the machine does.
func TestAdminIsNoMachine(t *testing.T) {
	t.Parallel()
	admin := func(r *rig, k event.Kind) {
		r.now = r.now.Add(time.Minute)
		r.Record(event.Event{At: r.now, Kind: k, Host: "master-0", MAC: mac, Detail: "by an admin", ByAdmin: true})
	}
	r := newRig(t, timeline.Config{}, storetest.Memory())
	admin(r, event.DHCPRelease)
	if s, ok := r.Last("master-0"); ok {
		t.Errorf("a released lease alone makes %+v", s)
	}
	r.record(time.Second, "master-0", event.DHCPDiscover, "pxe arch 7")
	admin(r, event.InstallDone)
	was, _ := r.Last("master-0")
	if was.At != event.StageAddress || was.Stage != event.StageAddress || was.Outcome != timeline.Done || !was.Active.Before(r.now) {
		t.Errorf("marked as installed after a DISCOVER: %+v", was)
	}
	admin(r, event.DHCPRelease)
	if s, _ := r.Last("master-0"); s != was {
		t.Errorf("a released lease changes %+v to %+v", was, s)
	}
	if b := r.boots(t, "master-0"); len(b) != 1 || len(b[0].Events) != 3 {
		t.Errorf("%+v, want one boot with all three events", b)
	}
}

// TestSystemIsNoBoot: a boot ends when its system runs; what the system does later makes it no longer.
func TestSystemIsNoBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	r.record(0, "master-0", event.DHCPDiscover, "os")
	r.record(time.Second, "master-0", event.InstallDone, "")
	for _, k := range []event.Kind{event.BackendUp, event.DHCPAck, event.FileMissing} {
		r.record(time.Minute, "master-0", k, "os")
	}
	if b := r.boots(t, "master-0"); len(b) != 1 || b[0].Ended.Sub(b[0].Started) != time.Second {
		t.Errorf("a boot of 1 s is %+v", b)
	}
}

// TestMarkIsNoBoot: a machine that was marked as installed, and armed, before it sent anything has no boot; its first DISCOVER begins one,
// and an installer's own report ends it.
func TestMarkIsNoBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	for _, k := range []event.Kind{event.InstallDone, event.BackendUp, event.InstallArmed, event.BackendDrained} {
		r.record(time.Second, "master-0", k, "")
	}
	if s, _ := r.Last("master-0"); s.Stage != "" || s.Outcome != timeline.None {
		t.Errorf("after marks the machine is %s at stage %q", s.Outcome, s.Stage)
	}
	r.record(time.Second, "master-0", event.DHCPDiscover, "pxe arch 7")
	if s, _ := r.Last("master-0"); s.Stage != event.StageAddress || s.Outcome != timeline.Booting {
		t.Errorf("after its DISCOVER the machine is %s at stage %q", s.Outcome, s.Stage)
	}
	r.record(time.Second, "master-0", event.ScriptServed, "boot.ipxe")
	r.record(time.Second, "master-0", event.InstallStarted, "")
	r.record(time.Second, "master-0", event.InstallDone, "")
	if s, _ := r.Last("master-0"); s.Stage != event.StageInstall || s.Outcome != timeline.Done {
		t.Errorf("after its installation the machine is %s at stage %q", s.Outcome, s.Stage)
	}
}

// TestAnothersRequest: a refused request in the name of a machine from an address that is not the machine's is recorded; it neither fails nor starts a boot of
// the machine.
func TestAnothersRequest(t *testing.T) {
	t.Parallel()
	own, second, other := netip.MustParseAddr("192.168.16.21"), netip.MustParseAddr("192.168.16.121"), netip.MustParseAddr("192.168.16.99")
	loaded := []step{{0, event.DHCPAck, "ipxe"}, {0, event.ScriptServed, "boot.ipxe"}, {0, event.FileServed, "k"}}
	tests := []struct {
		name  string
		steps []step
		kind  event.Kind // what is refused then; AddressConflict, FileMissing: another machine has the address; TFTPFailed: unacknowledged
		from  netip.Addr // other: only claimed
		want  []string   // of each boot: events, stage, outcome
	}{
		{"another machine's request for a document", loaded, event.ConfigRefused, other, []string{"4 files booting"}},
		{"another's script", loaded, event.ScriptRefused, other, []string{"4 files booting"}},
		{"another machine's request for a script after an install", install, event.ScriptRefused, other, []string{"18 install done"}},
		{"another's script once it is armed", append(loaded[:3:3], step{0, event.InstallArmed, ""}), event.ScriptRefused, other, []string{"3 files booting", "2  none"}},
		{"its own document", loaded, event.ConfigRefused, own, []string{"4 config failed"}},
		{"its own script", loaded, event.ScriptRefused, own, []string{"3 files booting", "1 script failed"}},
		{"by another machine that took its address", loaded, event.AddressConflict, own, []string{"4 files booting"}},
		{"a file, by another machine that took its address", loaded, event.FileMissing, own, []string{"4 files booting"}},
		{"a file, by another machine that took its IPv6 address", loaded, event.FileMissing, netip.MustParseAddr("fd00::21"), []string{"4 files booting"}},
		{"a script by TFTP, which nobody acknowledged", loaded, event.TFTPFailed, own, []string{"4 files booting"}},
		{"a script by TFTP after an install, which nobody acknowledged", install, event.TFTPFailed, own, []string{"18 install done"}},
		{"from another of its NICs", append(loaded[:3:3], step{0, event.DHCPAck, "second"}), event.ConfigRefused, second, []string{"5 config failed"}},
		{"by IPv6, whose addresses DHCP does not assign", loaded, event.ConfigRefused, netip.MustParseAddr("fd00::21"), []string{"4 config failed"}},
		{"its own, at an address that is not leased", nil, event.ConfigRefused, own, []string{"1 config failed"}},
		{"another's, before the machine's first event", nil, event.ConfigRefused, other, []string{"1  none"}},
		{"another machine that has its address, before the machine's first event", nil, event.AddressConflict, own, []string{"1  none"}},
		{"another's, before the machine has an address", []step{{0, event.DHCPDiscover, "pxe arch 7"}}, event.ScriptRefused, other, []string{"2 address booting"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mem := storetest.Memory()
			r := newRig(t, timeline.Config{}, mem)
			for i, s := range tt.steps {
				r.now = r.now.Add(s.after + time.Millisecond)
				addr := own
				if s.detail == "second" {
					addr = second
				}
				r.Record(event.Event{Seq: uint64(i), At: r.now, Kind: s.kind, Host: "master-0", MAC: mac, Addr: addr, Detail: s.detail, Client: clientOf(s.kind, s.detail)})
			}
			r.save(t)
			now := r.now.Add(time.Second)
			r = newRig(t, timeline.Config{}, mem.Reopen()) // what it holds is known after a restart, too
			e := event.Event{At: now, Kind: tt.kind, Host: "master-0", MAC: mac, Addr: tt.from, Claimed: tt.from != own, Err: "no"}
			if tt.kind == event.AddressConflict || tt.kind == event.FileMissing {
				e.Claimed, e.Reason = true, event.OtherMachine
			} else if tt.kind == event.TFTPFailed {
				e.Claimed, e.Reason = true, event.Unacknowledged
			}
			r.Record(e)
			var got []string
			for _, b := range r.boots(t, "master-0") {
				got = append(got, fmt.Sprintf("%d %s %s", len(b.Events), b.Stage, b.Outcome))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("boots (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnothersRequestIsNoBoot: what another machine does with the name or address of one that has sent nothing is no boot; the first
// request of the machine itself begins one.
func TestAnothersRequestIsNoBoot(t *testing.T) {
	t.Parallel()
	for _, seen := range []event.Kind{event.DHCPDiscover, event.InstallArmed} {
		r := newRig(t, timeline.Config{}, storetest.Memory())
		r.Record(event.Event{At: r.now, Kind: event.AddressConflict, Host: "master-0", MAC: mac, Claimed: true, Reason: event.OtherMachine})
		r.record(time.Minute, "master-0", event.BackendUp, "api")
		r.record(time.Minute, "master-0", seen, "pxe arch 7")
		if b := r.boots(t, "master-0"); len(b) != 2 || b[0].Outcome != timeline.None || !b[1].Started.Equal(r.now) {
			t.Errorf("after %s the boots are %+v", seen, b)
		}
	}
}

// TestLoading: a machine may load by TFTP from the DHCP exchange of its firmware on, until it loads by HTTP or its system shows, and while it
// loads by TFTP; after a restart, too. DHCP messages of a system, and what anybody can send, are no sign of that.
func TestLoading(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		steps []step
		want  bool
	}{
		{"nothing", nil, false},
		{"firmware asks", install[:2], false},
		{"firmware has an address", install[:3], true},
		{"beside another DHCP server", []step{{0, event.DHCPProxyOffer, "pxe"}}, true},
		{"its program", install[:5], true},
		{"firmware asks again", append(install[:5:5], install[0]), false},
		{"iPXE", install[:7], true},
		{"its script", install[:10], true},
		{"its kernel", install[:11], false},
		{"its system", install[:14], false},
		{"the installer", install[:16], false},
		{"installed", install, false},
		{"after a while", append(install[:7:7], step{11 * time.Minute, event.Unknown, ""}), false},
		{"a system that renews its lease", []step{{0, event.DHCPDiscover, "os"}, {0, event.DHCPAck, "os"}, {time.Hour, event.DHCPAck, "os"}}, false},
		{"local boot", append(install[:7:7], step{0, event.InstallLocalBoot, ""}, step{0, event.ScriptServed, "boot.ipxe"}), false},
		{"its system from its disk", append(install[:3:3], step{time.Minute, event.DHCPAck, "os"}), false},
		{"a boot loader that loads by TFTP", append(install[:11:11], step{0, event.TFTPServed, "pxelinux.0"}), true},
		{"without DHCP", []step{{0, event.TFTPServed, "snponly.efi"}}, true},
		{"a file that nobody acknowledged", append(slices.Clone(install), step{0, event.TFTPServed, "unverified"}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mem := storetest.Memory()
			r := newRig(t, timeline.Config{}, mem)
			for _, s := range tt.steps {
				if r.now = r.now.Add(s.after); s.kind == event.Unknown {
					continue
				}
				r.Record(event.Event{At: r.now, Kind: s.kind, Host: "master-0", MAC: mac, Client: clientOf(s.kind, s.detail), Unverified: s.detail == "unverified"})
			}
			r.save(t)
			if got := r.Loading(event.Event{Host: "master-0", MAC: mac}, r.now); got != tt.want {
				t.Errorf("loading %t, want %t", got, tt.want)
			}
			if got := newRig(t, timeline.Config{}, mem.Reopen()).Loading(event.Event{Host: "master-0", MAC: mac}, r.now); got != tt.want {
				t.Errorf("after a restart: loading %t, want %t", got, tt.want)
			}
		})
	}
}

// TestLoadingInPool: a machine of a pool, whose host name is its MAC with hyphens, is one machine with and without that name.
func TestLoadingInPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	r.Record(event.Event{At: r.now, Kind: event.DHCPAck, Host: mac.Hyphens(), MAC: mac, Client: clientOf(event.DHCPAck, "pxe")})
	for _, e := range []event.Event{{Host: mac.Hyphens(), MAC: mac}, {MAC: mac}, {Host: mac.Hyphens()}} {
		if !r.Loading(e, r.now) {
			t.Errorf("%+v: not loading", e)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	for _, s := range install[:12] {
		r.now = r.now.Add(s.after)
		e := event.Event{At: r.now, Kind: s.kind, Host: "master-0", MAC: mac, Detail: s.detail, Client: clientOf(s.kind, s.detail), Addr: netip.MustParseAddr("192.168.16.21")}
		switch s.kind {
		case event.TFTPServed, event.FileServed, event.ScriptServed:
			e.Bytes, e.Dur = 1_100_000*int64(1+s.after/time.Second), s.after+40*time.Microsecond
		}
		r.Record(e)
	}
	r.Record(event.Event{At: r.now.Add(90 * time.Second), Kind: event.ConfigRefused, Host: "master-0", MAC: mac, Detail: "master.ign",
		Err: "the request came from 192.168.16.99"})
	for i, claimed := range []event.Event{
		{Kind: event.FileServed, Detail: "images/vmlinuz", Bytes: 4_200_000, Addr: netip.MustParseAddr("192.168.16.99")},
		{Kind: event.TFTPFailed, Detail: "boot.ipxe", Addr: netip.MustParseAddr("192.168.16.21"), Reason: event.Unacknowledged, Err: "no answer"},
		{Kind: event.AddressConflict, Reason: event.OtherMachine, Err: "192.168.16.21 is used by 52:54:00:00:ff:66"},
	} {
		claimed.At, claimed.Host, claimed.MAC, claimed.Claimed = r.now.Add(time.Duration(91+i)*time.Second), "master-0", mac, true
		r.Record(claimed)
	}
	for name, o := range map[string]timeline.Options{"boot.txt": {}, "boot-coloured.txt": {Style: timeline.Coloured}} {
		var got bytes.Buffer
		if err := timeline.Format(&got, r.boots(t, "master-0")[0], o); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, update, "testdata/"+name, got.String())
	}
	var got bytes.Buffer
	for _, e := range r.boots(t, "master-0")[0].Events {
		if err := timeline.FormatEvent(&got, e, timeline.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	golden.Check(t, update, "testdata/follow.txt", got.String())
}

// TestFormatWithoutStage formats the boot of a machine that has sent no request yet.
func TestFormatWithoutStage(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	r.record(0, "master-0", event.InstallArmed, "rhcos")
	r.record(time.Second, "master-0", event.PowerCycleFailed, "10.0.9.24")
	var got bytes.Buffer
	if err := timeline.Format(&got, r.boots(t, "master-0")[0], timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "failed after 1.00 s no request received yet\n"; !strings.Contains(got.String(), want) {
		t.Errorf("want %q in\n%s", want, &got)
	}
}

// TestFormatWithoutBoot formats what was done to a virtual machine that never started.
func TestFormatWithoutBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	r.record(0, "master-0", event.VMCreated, "kvm1")
	r.record(time.Second, "master-0", event.VMFailed, "start on kvm1")
	var got bytes.Buffer
	if err := timeline.Format(&got, r.boots(t, "master-0")[0], timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "UTC  no boot: the machine has sent nothing since\n"; !strings.Contains(got.String(), want) || strings.Contains(got.String(), "failed:") {
		t.Errorf("want %q in\n%s", want, &got)
	}
}

// TestRestart compares a timeline before it is saved, while some of it is, and after a restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{}, mem)
	for i, s := range install {
		r.record(s.after, "master-0", s.kind, s.detail)
		if i == 5 {
			r.save(t)
		}
	}
	r.record(time.Hour, "", event.DHCPDiscover, "pxe") // of an unknown machine
	want, wantAll := r.boots(t, "master-0"), r.All()
	if len(want) != 1 || len(want[0].Events) != len(install) {
		t.Fatalf("boots before they are saved: %+v", want)
	}
	r.save(t)
	for name, after := range map[string]*rig{"saved": r, "restarted": newRig(t, timeline.Config{}, mem.Reopen())} {
		if diff := cmp.Diff(want, after.boots(t, "master-0"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: boots (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(wantAll, after.All(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: summaries (-want +got):\n%s", name, diff)
		}
	}
	after := newRig(t, timeline.Config{}, mem.Reopen())
	after.now = r.now
	after.record(time.Second, "master-0", event.BackendUp, "api") // the number of the event starts anew
	if got := after.boots(t, "master-0"); len(got) != 1 || len(got[0].Events) != len(install)+1 || got[0].Stage != event.StageInstall {
		t.Errorf("after the restart a boot goes on as %+v", got)
	}
	if got := after.boots(t, mac.String()); len(got) != 1 || got[0].Host != "" || got[0].MAC != mac {
		t.Errorf("boots of an unknown machine: %+v", got)
	}
}

// TestSavesEverySecond: a crash loses the last second at most, a clean stop nothing.
func TestSavesEverySecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := storetest.Memory()
		r := newRig(t, timeline.Config{}, mem)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		r.record(0, "master-0", event.DHCPDiscover, "pxe")
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		crashed := newRig(t, timeline.Config{}, mem.Reopen())
		if boots := crashed.boots(t, "master-0"); len(boots) != 1 || len(boots[0].Events) != 1 {
			t.Errorf("a second after the event a crash leaves %+v", boots)
		}
		r.record(0, "master-0", event.DHCPOffer, "pxe")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run = %v", err)
		}
		stopped := newRig(t, timeline.Config{}, mem.Reopen())
		if boots := stopped.boots(t, "master-0"); len(boots) != 1 || len(boots[0].Events) != 2 {
			t.Errorf("a clean stop leaves %+v", boots)
		}
	})
}

func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{Queue: 10}, mem)
	mem.FailCommits(errors.New("disk full"))
	for i := range 15 {
		r.record(time.Millisecond, fmt.Sprint("host-", i%3), event.DHCPDiscover, "pxe")
	}
	r.save(t)
	if n := r.dropped(t, "save"); n != 5 {
		t.Errorf("%v events dropped, want 5", n)
	}
	mem.FailCommits(nil)
	r.save(t)
	total := 0
	after := newRig(t, timeline.Config{}, mem.Reopen())
	for i := range 3 {
		for _, b := range after.boots(t, fmt.Sprint("host-", i)) {
			total += len(b.Events)
		}
	}
	if total != 10 {
		t.Errorf("%d events were saved once the store worked again, want 10", total)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{Boots: 4, Events: 10, Hosts: 3, Unknown: 2}, mem)
	// Of ten boots the second and the third fail.
	for i := range 10 {
		r.record(time.Hour, "a", event.DHCPDiscover, fmt.Sprint("pxe ", i))
		if i == 1 || i == 2 {
			r.record(time.Second, "a", event.TFTPFailed, fmt.Sprint(i))
		}
		r.save(t)
	}
	var got []string
	for _, b := range r.boots(t, "a") {
		got = append(got, b.Outcome+" "+b.Events[0].Detail)
	}
	if diff := cmp.Diff([]string{"failed pxe 1", "failed pxe 2", "booting pxe 8", "booting pxe 9"}, got); diff != "" {
		t.Errorf("boots (-want +got):\n%s", diff)
	}
	// One boot with far too many events keeps the first, and what matters.
	for range 100 {
		r.record(time.Millisecond, "a", event.DHCPOffer, "")
	}
	r.record(time.Millisecond, "a", event.TFTPFailed, "in the end")
	r.save(t)
	boots := r.boots(t, "a")
	last := boots[len(boots)-1]
	if n := len(last.Events); n != 11 || last.Outcome != timeline.Failed {
		t.Errorf("a long boot keeps %d events, outcome %s, want 10 and the failure", n, last.Outcome)
	}
	if n := r.dropped(t, "boot"); n != 91 {
		t.Errorf("%v events counted as too many, want 91", n)
	}
	for _, host := range []string{"b", "c", "d"} {
		r.record(time.Second, host, event.DHCPDiscover, "pxe")
	}
	for i := range 5 {
		r.now = r.now.Add(time.Second)
		r.Record(event.Event{At: r.now, Kind: event.DHCPRefused, MAC: lab.MAC{2, 0, 0, 0, 0, byte(i)}})
	}
	r.save(t)
	var keys []string
	for _, s := range newRig(t, timeline.Config{}, mem.Reopen()).All() {
		keys = append(keys, s.Key)
	}
	if diff := cmp.Diff([]string{"02:00:00:00:00:03", "02:00:00:00:00:04", "b", "c", "d"}, keys); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	if err := mem.Scan(t.Context(), "timeline/a/", func(key string, _ []byte) error { return errors.New(key + " is still there") }); err != nil {
		t.Error(err)
	}
}

// TestRefusalsCrowdOutNothing: however many requests are refused, another machine's in this one's name or its own, before the boot or in
// it, all other events of the boot are kept, and how many requests others made is shown.
func TestRefusalsCrowdOutNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	own, other := netip.MustParseAddr("192.168.16.21"), netip.MustParseAddr("192.168.16.99")
	refuse := func(n int, from netip.Addr, more int) {
		for i := range n {
			r.now = r.now.Add(time.Millisecond)
			r.Record(event.Event{At: r.now, Seq: uint64(1000 + i), Kind: event.ConfigRefused, Host: "master-0", MAC: mac, Addr: from, Claimed: from != own, Err: "no", More: more})
		}
	}
	for _, s := range install {
		r.now = r.now.Add(s.after)
		r.Record(event.Event{At: r.now, Kind: s.kind, Host: "master-0", MAC: mac, Addr: own, Detail: s.detail, Client: clientOf(s.kind, s.detail)})
		refuse(500, other, 0)
		refuse(50, own, 0)
	}
	refuse(1, other, 312)
	boots := r.boots(t, "master-0")
	var kinds, want []string
	refused := map[bool]int{} // by whether another machine asked
	for _, e := range boots[0].Events {
		if e.Kind == event.ConfigRefused {
			refused[e.Claimed]++
			continue
		}
		kinds = append(kinds, e.Kind.String())
	}
	for _, s := range install {
		want = append(want, s.kind.String())
	}
	if diff := cmp.Diff(want, kinds); diff != "" || len(boots) != 1 {
		t.Errorf("%d boots; events but refusals (-want +got):\n%s", len(boots), diff)
	}
	if diff := cmp.Diff(map[bool]int{true: 20, false: 100}, refused); diff != "" {
		t.Errorf("refusals, by whether another machine asked (-want +got):\n%s", diff)
	}
	if want := 500*len(install) + 312; boots[0].Claimed != want {
		t.Errorf("%d requests of others, want %d", boots[0].Claimed, want)
	}
	var text bytes.Buffer
	if err := timeline.Format(&text, boots[0], timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("events that other machines caused: %d\n", boots[0].Claimed); !strings.HasSuffix(text.String(), want) {
		t.Errorf("the text does not end in %q", want)
	}
}

// TestMadeUpMachines: requests in the names of MACs that nobody has take the place of no machine that exists.
func TestMadeUpMachines(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{Unknown: 2}, storetest.Memory())
	r.record(0, "", event.DHCPDiscover, "pxe")
	for i := range 10 {
		r.Record(event.Event{At: r.now, Kind: event.FileMissing, MAC: lab.MAC{2, 0, 0, 0, 1, byte(i)}, Addr: netip.MustParseAddr("192.0.2.7"), Claimed: true})
	}
	if all := r.All(); len(all) != 1 || all[0].Key != mac.String() {
		t.Errorf("machines: %+v, want only %s", all, mac)
	}
}

// TestRogueServer: the reply of another DHCP server to a MAC of which nothing else is known, such as that of doctor's probe, makes no machine.
func TestRogueServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	r.record(0, "", event.DHCPRogue, "")
	if all := r.All(); len(all) != 0 {
		t.Errorf("machines: %+v, want none", all)
	}
	r.record(0, "", event.DHCPDiscover, "pxe")
	r.record(0, "", event.DHCPRogue, "")
	if all := r.All(); len(all) != 1 || all[0].Last.Kind != event.DHCPRogue {
		t.Errorf("machines: %+v, want the one that asked", all)
	}
}

// TestFormatSummary: a summary says how many events it stands for.
func TestFormatSummary(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	e := event.Event{Kind: event.FileMissing, Detail: "files/nosuch312", Err: "file not found", More: 312, Over: 10*time.Second + 3*time.Millisecond}
	if err := timeline.FormatEvent(&got, e, timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "file missing      312 more in 10 s, the last: files/nosuch312  file not found\n"; !strings.HasSuffix(got.String(), want) {
		t.Errorf("got %q, want it to end in %q", got.String(), want)
	}
}

// TestEvictedMachineReturns: what the store had of a machine that was dropped is not among what it has of it now.
func TestEvictedMachineReturns(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{Hosts: 1}, mem)
	r.record(0, "a", event.DHCPDiscover, "pxe")
	r.save(t)
	r.record(0, "b", event.DHCPDiscover, "pxe")
	r.record(time.Second, "a", event.DHCPOffer, "new")
	r.save(t)
	boots := newRig(t, timeline.Config{}, mem.Reopen()).boots(t, "a")
	if len(boots) != 1 || len(boots[0].Events) != 1 || boots[0].Events[0].Detail != "new" {
		t.Errorf("boots = %+v, want the new event only", boots)
	}
}

// TestEvictedMachineIsReused: of many machines that the lab does not know, each takes the place of another and has its lists. It shows
// nothing of that one, also while that one's events are being saved.
func TestEvictedMachineIsReused(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{Unknown: 2}, storetest.Memory())
	ctx, cancel := context.WithCancel(t.Context())
	var saving sync.WaitGroup
	saving.Go(func() {
		for ctx.Err() == nil {
			r.save(t)
		}
	})
	defer saving.Wait()
	defer cancel()
	for i := range 500 {
		who := lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}
		for j := range 3 {
			r.Record(event.Event{Seq: uint64(3*i + j), At: epoch.Add(time.Duration(i) * time.Second), Kind: event.DHCPDiscover, MAC: who, Client: event.ClientPXE})
		}
		boots := r.boots(t, who.String())
		if len(boots) != 1 || len(boots[0].Events) != 3 {
			t.Fatalf("machine %d has %d boots, want one of 3 events: %+v", i, len(boots), boots)
		}
		for _, e := range boots[0].Events {
			if e.MAC != who {
				t.Fatalf("the timeline of %s has an event of %s", who, e.MAC)
			}
		}
	}
}

// TestEvictedMachineIsNoGarbage bounds what a machine that takes the place of another allocates: 10,000 that boot at once cause no garbage
// collection of their own. It was 3 KiB.
func TestEvictedMachineIsNoGarbage(t *testing.T) {
	r := newRig(t, timeline.Config{Unknown: 256, Queue: 1 << 20}, discard{})
	var before, after runtime.MemStats
	const machines = 2000
	for i := range 512 + machines {
		if i == 512 {
			runtime.ReadMemStats(&before)
		}
		for range 4 {
			r.Record(event.Event{At: epoch, Kind: event.DHCPDiscover, MAC: lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, Client: event.ClientPXE})
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / machines; each > 1024 {
		t.Errorf("a machine with four events allocates %d bytes, want at most 1024", each)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, timeline.Config{Follow: 2}, storetest.Memory())
		ctx, cancel := context.WithCancel(t.Context())
		one, all := r.Follow(ctx, "a"), r.Follow(ctx, "")
		r.record(0, "b", event.DHCPDiscover, "b")
		for i := range 3 {
			r.record(0, "a", event.DHCPDiscover, fmt.Sprint(i))
		}
		r.Record(event.Event{Kind: event.LabApplied})
		cancel()
		synctest.Wait()
		read := func(events <-chan event.Event) (got []string) {
			for e := range events {
				got = append(got, e.Host+e.Detail)
			}
			return got
		}
		if diff := cmp.Diff([]string{"a0", "a1"}, read(one)); diff != "" {
			t.Errorf("events of a (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"bb", "a0"}, read(all)); diff != "" {
			t.Errorf("all events (-want +got):\n%s", diff)
		}
		if n := r.dropped(t, "follow"); n != 1+3 {
			t.Errorf("%v events counted as dropped, want 4", n)
		}
		r.record(0, "a", event.DHCPDiscover, "no follower")
	})
}

func TestUnreadableStore(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{}, mem)
	r.record(0, "a", event.DHCPDiscover, "pxe")
	r.save(t)
	for key, value := range map[string]string{"timelines/b": "{", "timelines/c": "{}", "timeline/a/zz": "[]", "timeline/a/1/2": "{"} {
		if err := mem.Commit(t.Context(), store.Put(key, []byte(value))); err != nil {
			t.Fatal(err)
		}
	}
	after := newRig(t, timeline.Config{}, mem.Reopen())
	if boots := after.boots(t, "a"); len(boots) != 1 || len(boots[0].Events) != 1 {
		t.Errorf("boots = %+v", boots)
	}
	if _, ok := after.Last("b"); ok {
		t.Error("a timeline that cannot be read became a machine")
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 999 * time.Millisecond: "999 ms", 3250 * time.Millisecond: "3.25 s", 247 * time.Second: "4m07s",
		125 * time.Minute: "2h05m", -time.Second: "-1.00 s",
	} {
		if got := timeline.Since(d); got != want {
			t.Errorf("Since(%v) = %q, want %q", d, got, want)
		}
	}
}

// BenchmarkRecord measures what recording an event costs.
func BenchmarkRecord(b *testing.B) {
	r := newRig(b, timeline.Config{Queue: 1 << 30, Events: 1 << 30}, storetest.Memory())
	hosts := make([]string, 1000)
	for i := range hosts {
		hosts[i] = fmt.Sprint("host-", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.record(time.Microsecond, hosts[i%len(hosts)], event.FileServed, "images/vmlinuz")
	}
}

// BenchmarkMemory10kHosts reports what is kept in memory of 10,000 hosts with ten boots each.
func BenchmarkMemory10kHosts(b *testing.B) {
	for b.Loop() {
		before := heap()
		r := newRig(b, timeline.Config{Queue: 1 << 30}, discard{})
		for boot := range 10 {
			for i := range 10_000 {
				host := "host-" + strings.Repeat("0", 4-len(fmt.Sprint(i/10))) + fmt.Sprint(i)
				for _, s := range install {
					r.record(s.after/10_000, host, s.kind, s.detail)
				}
			}
			r.now = r.now.Add(time.Duration(boot) * time.Hour)
			r.save(b)
		}
		b.ReportMetric(float64(heap()-before)/10_000, "B/host")
		runtime.KeepAlive(r)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// discard is a store that keeps nothing.
type discard struct{}

func (discard) Get(context.Context, string) ([]byte, error) { return nil, store.ErrNotFound }
func (discard) Scan(context.Context, string, func(string, []byte) error) error {
	return nil
}
func (discard) Commit(context.Context, store.Txn) error { return nil }
func (discard) CommitAll(_ context.Context, txns []store.Txn) []error {
	return make([]error, len(txns))
}
func (discard) Close() error { return nil }

// TestRefusedStaysRefused: DHCP records a refusal once, and the machine asks again, which is no progress; an offer is.
func TestRefusedStaysRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeline.Config{}, storetest.Memory())
	outcome := func(want string) {
		t.Helper()
		if s, _ := r.Last("a"); s.Outcome != want || (want == timeline.Failed) != (s.Reason != "") {
			t.Errorf("outcome %q because of %q, want %q", s.Outcome, s.Reason, want)
		}
	}
	r.record(0, "a", event.DHCPDiscover, "os")
	r.record(time.Millisecond, "a", event.DHCPRefused, "os")
	r.record(time.Second, "a", event.DHCPDiscover, "os")
	outcome(timeline.Failed)
	r.record(2*time.Second, "a", event.DHCPOffer, "os")
	outcome(timeline.Booting)
}

// TestFormatIsPrintable: text from the network never controls a terminal.
func TestFormatIsPrintable(t *testing.T) {
	t.Parallel()
	e := event.Event{At: time.Unix(0, 0), Kind: event.FileMissing, Detail: "files/\x1b[2J\n\u202ex", Err: "\x1b]0;x\a\xff"}
	var b strings.Builder
	boot := timeline.Boot{Host: "a", Outcome: timeline.Failed, Reason: "\x1b[31m", Events: []event.Event{e}}
	if err := errors.Join(timeline.Format(&b, boot, timeline.Options{}), timeline.FormatEvent(&b, e, timeline.Options{})); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) && r != utf8.RuneError }) || strings.Count(b.String(), "\n") != 4 {
		t.Errorf("%q", b.String())
	}
}
