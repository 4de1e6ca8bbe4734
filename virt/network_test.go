//go:build cgo && libvirt_dlopen

package virt_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// planned returns the plan as "network lan: missing" or "master-0: ok", and the details of the networks.
func planned(t *testing.T, b *testServer, hosts ...string) (lines, details []string) {
	t.Helper()
	plan, err := b.Plan(t.Context(), hosts)
	check(t, err)
	for _, p := range plan {
		name := p.Host
		if p.Network != "" {
			name = "network " + p.Network
			details = append(details, p.Details...)
		}
		lines = append(lines, name+": "+string(p.Condition))
	}
	return lines, details
}

func wantPlanned(t *testing.T, b *testServer, want ...string) []string {
	t.Helper()
	lines, details := planned(t, b)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Fatalf("plan (-want +got), details %q\n%s", details, diff)
	}
	return details
}

// TestLibvirtNetworks lets bootlab create a network of each kind on a real libvirtd, with edits and networks of others beside them.
func TestLibvirtNetworks(t *testing.T) {
	netns.Need(t, "iptables", "virt-xml-validate")
	netns.Enter(t)
	d, on := startLibvirtd(t)
	ctx := t.Context()
	seg := netns.NewSegment(t, "10.132.0.1/24")
	virsh := func(args ...string) string {
		t.Helper()
		return netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...)
	}
	address := netip.MustParsePrefix("10.133.0.254/24")
	with := func(change ...func(*lab.Attachment)) *lab.Lab {
		return oneHost(on, func(h *lab.Host) {
			h.Network.MTU = 1400
			a := lab.Attachment{Network: h.Network, LibvirtNetwork: "lab-nat", Create: &lab.LibvirtNetwork{Forward: lab.ForwardNAT, Address: address, Bridge: "lab-br"}}
			for _, c := range change {
				c(&a)
			}
			h.VM.Hypervisor.Bridges = []lab.Attachment{a,
				{Network: &lab.Network{Name: "alone"}, LibvirtNetwork: "lab-alone", Create: &lab.LibvirtNetwork{Forward: lab.ForwardIsolated}},
				{Network: &lab.Network{Name: "wire"}, LibvirtNetwork: "lab-wire", Create: &lab.LibvirtNetwork{Forward: lab.ForwardBridge, Bridge: seg.Bridge}},
			}
		})
	}
	b := newTestServer(t, with(), nil, virt.Config{})
	serve(t, b)
	wantPlanned(t, b, "network lab-alone: missing", "network lab-nat: missing", "network lab-wire: missing", "master-0: missing")
	check(t, b.Apply(ctx, "master-0"))
	if lines, _ := planned(t, b, "master-0"); !slices.Equal(lines, []string{"network lab-nat: ok", "master-0: ok"}) {
		t.Errorf("plan of the machine: %v", lines)
	}
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-alone"))
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-wire"))
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: ok", "network lab-wire: ok", "master-0: ok")
	if events := b.events.take(); !slices.Contains(events, event.VMNetworkDefined) {
		t.Errorf("events %v", events)
	}
	for _, name := range []string{"lab-alone", "lab-nat", "lab-wire"} {
		file := filepath.Join(t.TempDir(), name+".xml")
		check(t, os.WriteFile(file, []byte(virsh("net-dumpxml", name)), 0o600))
		netns.Run(t, "virt-xml-validate", file, "network")
	}
	if text := netns.Run(t, "ip", "-o", "addr", "show", "lab-br"); !strings.Contains(text, "10.133.0.254/24") {
		t.Errorf("address of the network: %s", text)
	}
	if text := netns.Run(t, "ip", "-o", "link", "show", "lab-br"); !strings.Contains(text, "mtu 1400") {
		t.Errorf("MTU of the network: %s", text)
	}
	if text := netns.Run(t, "ss", "-lnup"); strings.Contains(text, "dnsmasq") {
		t.Errorf("libvirt answers DHCP or DNS: %s", text)
	}

	// Edits by virsh; a definition that changes while the network runs; one that is not active.
	file := filepath.Join(t.TempDir(), "edited.xml")
	edited := strings.Replace(virsh("net-dumpxml", "--inactive", "lab-nat"), "<dns enable='no'/>", "", 1)
	edited = strings.Replace(edited, "prefix='24'>", "prefix='24'><dhcp><range start='10.133.0.2' end='10.133.0.9'/></dhcp>", 1)
	check(t, os.WriteFile(file, []byte(edited), 0o600))
	virsh("net-define", file)
	details := wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: drifted", "network lab-wire: ok", "master-0: ok")
	if !slices.Equal(details, []string{"DHCP of libvirt: on, lab file: off", "DNS of libvirt: on, lab file: off"}) {
		t.Errorf("details %q", details)
	}
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-nat"))
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: ok", "network lab-wire: ok", "master-0: ok")
	address = netip.MustParsePrefix("10.133.0.253/24")
	b.use(t, with())
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: changed", "network lab-wire: ok", "master-0: ok")
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-nat"))
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: restart", "network lab-wire: ok", "master-0: ok")
	wantErr(t, b.DeleteNetwork(ctx, "kvm1", "lab-nat"), "running machines have 1 NIC in it: stop them first")
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	virsh("net-destroy", "lab-nat")
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: drifted", "network lab-wire: ok", "master-0: ok")
	check(t, b.Start(ctx, "master-0"))
	wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: ok", "network lab-wire: ok", "master-0: ok")

	// A network of somebody else is never touched.
	check(t, os.WriteFile(file, []byte("<network><name>theirs</name></network>"), 0o600))
	virsh("net-define", file)
	before := virsh("net-dumpxml", "theirs")
	b.use(t, with(func(a *lab.Attachment) { a.LibvirtNetwork = "theirs" }))
	check(t, b.Stop(ctx, "master-0", virt.StopForce, 0))
	const foreign = `libvirt network theirs exists on hypervisor kvm1 and was not created from lab "telco"`
	wantErr(t, b.Apply(ctx, "master-0"), foreign)
	wantErr(t, b.ApplyNetwork(ctx, "kvm1", "theirs"), foreign)
	wantErr(t, b.DeleteNetwork(ctx, "kvm1", "theirs"), `it was not created from lab "telco"`)
	if after := virsh("net-dumpxml", "theirs"); after != before {
		t.Errorf("network of somebody else:\n%s", after)
	}
	details = wantPlanned(t, b, "network lab-alone: ok", "network lab-nat: orphaned", "network lab-wire: ok", "network theirs: unknown", "master-0: changed")
	if text := strings.Join(details, "\n"); !strings.Contains(text, "bootlab vm network delete kvm1 lab-nat") {
		t.Errorf("details %q", details)
	}
	check(t, b.DeleteNetwork(ctx, "kvm1", "lab-nat"))
	wantErr(t, b.DeleteNetwork(ctx, "kvm1", "lab-nat"), "there is no such libvirt network")
	wantPlanned(t, b, "network lab-alone: ok", "network lab-wire: ok", "network theirs: unknown", "master-0: changed")
}

// TestNetworkClashes has what others may do beside the networks of a real libvirtd: they have the bridge's name, or the address; they stop
// the network under a running machine, undefine it, and copy it with its mark.
func TestNetworkClashes(t *testing.T) {
	netns.Need(t, "iptables")
	netns.Enter(t)
	d, on := startLibvirtd(t)
	ctx := t.Context()
	virsh := func(args ...string) string {
		t.Helper()
		return netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...)
	}
	l := oneHost(on, func(h *lab.Host) {
		h.VM.Hypervisor.Bridges = []lab.Attachment{{Network: h.Network, LibvirtNetwork: "lab-nat",
			Create: &lab.LibvirtNetwork{Forward: lab.ForwardNAT, Address: netip.MustParsePrefix("10.133.0.254/24"), Bridge: "lab-br"}}}
	})
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)

	netns.Run(t, "ip", "link", "add", "lab-br", "type", "bridge")
	netns.Run(t, "ip", "addr", "add", "10.140.0.1/24", "dev", "lab-br")
	wantErr(t, b.Apply(ctx, "master-0"), "create libvirt network lab-nat: error creating bridge interface lab-br: File exists")
	if details := wantPlanned(t, b, "network lab-nat: drifted", "master-0: missing"); !slices.Equal(details, []string{"it is not active"}) {
		t.Errorf("details %q", details)
	}
	if text := netns.Run(t, "ip", "-o", "addr", "show", "lab-br"); !strings.Contains(text, "10.140.0.1/24") || strings.Contains(text, "10.133") {
		t.Errorf("the bridge of others: %s", text)
	}
	netns.Run(t, "ip", "link", "set", "lab-br", "name", "theirs", "up")
	netns.Run(t, "ip", "addr", "add", "10.133.0.1/24", "dev", "theirs")
	wantErr(t, b.Apply(ctx, "master-0"), "Network is already in use by interface theirs")
	netns.Run(t, "ip", "link", "del", "theirs")
	file := filepath.Join(t.TempDir(), "network.xml")
	check(t, b.DeleteNetwork(ctx, "kvm1", "lab-nat"))
	check(t, os.WriteFile(file, []byte("<network><name>theirs</name><bridge name='lab-br'/></network>"), 0o600))
	virsh("net-define", file)
	wantErr(t, b.Apply(ctx, "master-0"), "bridge name 'lab-br' already in use")
	wantPlanned(t, b, "network lab-nat: missing", "master-0: missing")
	virsh("net-undefine", "theirs")
	check(t, b.Apply(ctx, "master-0"))
	wantPlanned(t, b, "network lab-nat: ok", "master-0: ok")

	// Stopped under the machine, whose NIC stays without a link also once the network runs again.
	virsh("net-destroy", "lab-nat")
	wantPlanned(t, b, "network lab-nat: drifted", "master-0: restart")
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-nat"))
	wantPlanned(t, b, "network lab-nat: ok", "master-0: restart")
	plan, err := b.Plan(ctx, []string{"master-0"})
	check(t, err)
	if text := strings.Join(plan[1].Details, "\n"); !strings.Contains(text, "its NIC there has had no link since: stop and start it") {
		t.Errorf("details %q", text)
	}
	wantErr(t, b.DeleteNetwork(ctx, "kvm1", "lab-nat"), "running machines have 1 NIC in it: stop them first")
	check(t, b.Restart(ctx, "master-0"))
	wantPlanned(t, b, "network lab-nat: ok", "master-0: ok")

	virsh("net-undefine", "lab-nat") // it goes on until it is stopped
	wantPlanned(t, b, "network lab-nat: drifted", "master-0: ok")
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-nat"))
	virsh("net-autostart", "--disable", "lab-nat")
	if details := wantPlanned(t, b, "network lab-nat: drifted", "master-0: ok"); !slices.Equal(details, []string{"it does not start with its hypervisor"}) {
		t.Errorf("details %q", details)
	}
	check(t, b.ApplyNetwork(ctx, "kvm1", "lab-nat"))
	wantPlanned(t, b, "network lab-nat: ok", "master-0: ok")

	const other = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
	text := virsh("net-dumpxml", "--inactive", "lab-nat")
	text = regexp.MustCompile(`<uuid>.*</uuid>|<mac .*/>`).ReplaceAllString(text, "")
	text = strings.NewReplacer("<name>lab-nat</name>", "<name>copy</name><uuid>"+other+"</uuid>", "lab-br", "copy-br", "10.133.", "10.141.").Replace(text)
	check(t, os.WriteFile(file, []byte(text), 0o600))
	virsh("net-define", file)
	wantPlanned(t, b, "network lab-nat: ok", "master-0: ok")
	wantErr(t, b.DeleteNetwork(ctx, "kvm1", "copy"), `it was not created from lab "telco"`)
	if got := strings.TrimSpace(virsh("net-uuid", "copy")); got != other {
		t.Errorf("the copy is %q", got)
	}
}
