//go:build cgo && libvirt_dlopen

package virt_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// surveyed asks the hypervisors of a lab.
func surveyed(t *testing.T, l *lab.Lab) (missing, unknown []string) {
	t.Helper()
	table, err := virt.Compile(l)
	check(t, err)
	m, u := virt.Survey(t.Context(), newDriver(), table)
	for _, p := range m {
		missing = append(missing, p.Error())
	}
	for _, p := range u {
		unknown = append(unknown, p.Error())
	}
	return missing, unknown
}

// TestSurvey asks a real libvirtd for what machines need: for what it has, then for all that it may lack.
func TestSurvey(t *testing.T) {
	netns.Need(t, "swtpm")
	netns.Enter(t)
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.137.0.1/24")
	place := lab.Pos{File: "lab.yaml", Line: 3, Column: 3}
	with := func(change ...func(*lab.Host)) *lab.Lab {
		return oneHost(append([]func(*lab.Host){on, func(h *lab.Host) {
			h.VM.Hypervisor.Pos, h.VM.Hypervisor.Bridges[0].Bridge = place, seg.Bridge
		}}, change...)...)
	}
	missing, unknown := surveyed(t, with(func(h *lab.Host) { h.VM.Firmware, h.VM.TPM = lab.FirmwareUEFISecure, true }))
	if len(missing)+len(unknown) > 0 {
		t.Errorf("missing %q, unknown %q", missing, unknown)
	}
	netns.Run(t, "virsh", "-c", d.URI, "pool-define-as", "idle", "dir", "--target", t.TempDir())
	const host = "lab.yaml:7:3: hosts.master-0.vm."
	const hypervisor = "lab.yaml:3:3: hypervisors.kvm1.bridges.baremetal: "
	for _, tt := range []struct {
		name   string
		change func(*lab.Host)
		want   string
	}{
		{"bridge", func(h *lab.Host) { h.VM.Hypervisor.Bridges[0].Bridge = "br-none" }, hypervisor + "there is no interface br-none: want one of lab"},
		{"network", func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, LibvirtNetwork: "lan"}
		}, hypervisor + "there is no libvirt network lan: define it there, or let bootlab create it"},
		{"pool", func(h *lab.Host) { h.VM.Disks[0].Pool = "fast" }, host + "disks: hypervisor kvm1 has no storage pool fast: want one of default, idle"},
		{"idle pool", func(h *lab.Host) { h.VM.Hypervisor.Pool = "idle" }, host + "disks: storage pool idle of hypervisor kvm1 is not active"},
		{"memory", func(h *lab.Host) { h.VM.Memory = 512 * 1024 * gib }, host + "memory: it wants 536870912 MiB of memory, and hypervisor kvm1"},
		{"machine", func(h *lab.Host) { h.VM.Machine = "pc-q35-99.0" }, host + "machine: hypervisor kvm1 runs no x86_64 machine pc-q35-99.0"},
		{"cpu", func(h *lab.Host) { h.VM.CPU = "Pentium9" }, host + "cpu: hypervisor kvm1 does not have CPU Pentium9"},
		{"video", func(h *lab.Host) { h.VM.Video = "xga" }, host + "video: hypervisor kvm1 has no video model xga"},
	} {
		missing, unknown := surveyed(t, with(tt.change))
		if len(missing) != 1 || !strings.HasPrefix(missing[0], tt.want) || len(unknown) > 0 {
			t.Errorf("%s: missing %q, unknown %q, want %s", tt.name, missing, unknown, tt.want)
		}
	}
}

// TestSurveyOfPools: a machine needs the pools that its creation uses, that of the hypervisor for a document alone.
func TestSurveyOfPools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*lab.Host)
		want   bool
	}{
		{"a disk of another pool", func(h *lab.Host) { h.VM.Disks[0].Pool = "default-pool" }, false},
		{"no disk", func(h *lab.Host) { h.VM.Disks = nil }, false},
		{"a disk without a pool", func(*lab.Host) {}, true},
		{"a document", func(h *lab.Host) { fromImage(h); h.VM.Disks = []lab.Disk{{Pool: "default-pool"}} }, true},
	} {
		missing, _ := surveyed(t, oneHost(func(h *lab.Host) {
			h.VM.Hypervisor.DomainType, h.VM.Hypervisor.Pool, h.VM.Memory = "test", "", gib
		}, tt.change))
		if got := strings.Contains(strings.Join(missing, " "), "has no storage pool default:"); got != tt.want {
			t.Errorf("%s: missing %q, pool default wanted: %t", tt.name, missing, tt.want)
		}
	}
}

// TestSurveyWithASilentHypervisor: one that does not answer is reported, and delays no other.
func TestSurveyWithASilentHypervisor(t *testing.T) {
	t.Parallel()
	l := oneHost(func(h *lab.Host) { h.VM.Hypervisor.DomainType, h.VM.Hypervisor.Pool, h.VM.Memory = "test", "fast", gib })
	l.Hypervisors = append([]*lab.Hypervisor{{Name: "kvm2", URI: "silent:///", URIPos: lab.Pos{File: "lab.yaml", Line: 4, Column: 10}}}, l.Hypervisors...)
	table, err := virt.Compile(l)
	check(t, err)
	asked := make(chan struct{})
	missing, _ := virt.Survey(t.Context(), silentBeside{newDriver(), t, asked}, table)
	for _, part := range []string{"lab.yaml:4:10: hypervisors.kvm2.uri: does not answer: ", "hypervisor kvm1 has no storage pool fast: want one of default-pool"} {
		if !strings.Contains(missing.Error(), part) {
			t.Errorf("missing %q lacks %q", missing, part)
		}
	}
}

// TestSurveyMarksTheValue: what a network has not is at the name of what carries it.
func TestSurveyMarksTheValue(t *testing.T) {
	t.Parallel()
	table, err := virt.Compile(oneHost(func(h *lab.Host) {
		h.VM.Hypervisor.Pos = lab.Pos{File: "lab.yaml", Line: 3, Column: 3}
		h.VM.Hypervisor.Bridges[0] = lab.Attachment{Pos: lab.Pos{File: "lab.yaml", Line: 4, Column: 30}, Network: h.Network, LibvirtNetwork: "lan"}
	}))
	check(t, err)
	missing, _ := virt.Survey(t.Context(), newFake(), table)
	if want := "lab.yaml:4:30: hypervisors.kvm1.bridges.baremetal: there is no libvirt network lan"; !strings.Contains(missing.Error(), want) {
		t.Errorf("missing %q lacks %q", missing, want)
	}
}

// silentBeside is a driver whose hypervisor silent:/// answers nothing until another was asked for all.
type silentBeside struct {
	virt.Driver
	t     *testing.T
	asked chan struct{}
}

func (d silentBeside) Open(uri string, changed func([]string)) virt.Hypervisor {
	if uri == "silent:///" {
		return silent{newFake(), d}
	}
	return &closing{d.Driver.Open(uri, changed), func() { close(d.asked) }}
}

type silent struct {
	virt.Hypervisor
	silentBeside
}

func (s silent) Node(ctx context.Context) (virt.Node, error) {
	select {
	case <-s.asked:
	case <-ctx.Done():
		s.t.Error("the other was not asked meanwhile")
	}
	return virt.Node{}, virt.Unreachable(errSilent)
}

type closing struct {
	virt.Hypervisor
	closed func()
}

func (c *closing) Close() {
	c.Hypervisor.Close()
	c.closed()
}

// newDriver returns a driver with real processes.
func newDriver() virt.Driver {
	return &virt.Processes{Program: "/proc/self/exe", Log: slog.New(slog.DiscardHandler)}
}
