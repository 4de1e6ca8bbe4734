package virt_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// edit changes the definition of the only domain, as virsh does.
func (f *fake) edit(t *testing.T, before, after string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.domains {
		if !strings.Contains(d.xml, before) {
			t.Fatalf("no %s in\n%s", before, d.xml)
		}
		d.xml = strings.Replace(d.xml, before, after, 1)
	}
}

// TestCurrentCPUsAndMemoryDrift: virsh setvcpus and setmem leave the maximum as it is.
func TestCurrentCPUsAndMemoryDrift(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, before, after, want string
		change                    func(*lab.Host)
	}{
		{"cpus", "<vcpu>2</vcpu>", "<vcpu placement='static' current='1'>2</vcpu>", "current cpus: 1, lab file: 2", nil},
		{"all cpus", "<vcpu>2</vcpu>", "<vcpu placement='static' current='2'>2</vcpu>", "", nil},
		{"memory", "<vcpu>", "<currentMemory unit='KiB'>1048576</currentMemory><vcpu>", "current memory: 1 GiB, lab file: 4 GiB", nil},
		{"all memory", "<vcpu>", "<currentMemory unit='KiB'>4194304</currentMemory><vcpu>", "", nil},
		{"cpus of vm.xml", `current="1"`, `current="2"`, "current cpus: 2, lab file: 1", withXML(lab.XMLChange{At: "vcpu", Set: map[string]string{"current": "1"}})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.change == nil {
				tt.change = func(*lab.Host) {}
			}
			f := newFake()
			b := newTestServer(t, oneHost(tt.change), f, virt.Config{})
			check(t, b.Create(t.Context(), "master-0"))
			wantDetails(t, b, virt.ConditionOK)
			f.edit(t, tt.before, tt.after)
			if tt.want == "" {
				wantDetails(t, b, virt.ConditionOK)
				return
			}
			wantDetails(t, b, virt.ConditionDrifted, tt.want)
			check(t, b.Apply(t.Context(), "master-0"))
			wantDetails(t, b, virt.ConditionOK)
		})
	}
}

// TestDrift: each edit of what bootlab sets is shown, and undone by apply.
func TestDrift(t *testing.T) {
	t.Parallel()
	secure := func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFISecure }
	ovs := func(h *lab.Host) {
		h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, OVS: "br-ovs"}
	}
	const nic = "interface 52:54:00:00:02:01: "
	for _, tt := range []struct {
		name, before, after, want string
		change                    func(*lab.Host)
	}{
		{"MTU", `<mtu size="9000"></mtu>`, `<mtu size="1500"/>`, nic + "bridge br0 virtio MTU 1500 boot order 1, lab file: bridge br0 virtio MTU 9000 boot order 1", func(h *lab.Host) { h.Network.MTU = 9000 }},
		{"ROM", `<rom enabled="no"></rom>`, "", nic + "bridge br0 virtio boot order 1, lab file: bridge br0 virtio without ROM boot order 1", secure},
		{"file of the ROM", "<mac ", `<rom file="/a.rom"/><mac `, nic + "bridge br0 virtio ROM /a.rom boot order 1, lab file: bridge br0 virtio boot order 1", nil},
		{"virtual port", `type="openvswitch"`, `type="midonet"`, nic + "bridge br-ovs another virtual port virtio boot order 1, lab file: bridge br-ovs Open vSwitch virtio boot order 1", ovs},
		{"its parameters, which libvirt adds", `<parameters>`, `<parameters interfaceid="4eb4a59d-5f0c-4f8d-8f8b-5a8d1a1e5b0e">`, "", ovs},
		{"SCSI controller", `model="virtio-scsi"`, `model="lsilogic"`, "controller scsi 0: lsilogic, lab file: virtio-scsi", func(h *lab.Host) { h.VM.Disks[0].Bus = "scsi" }},
		{"a controller that libvirt adds", "<interface", `<controller type="usb" index="0" model="qemu-xhci"/><interface`, "", nil},
		{"clock", `offset="utc"`, `offset="localtime"`, "clock: localtime, lab file: utc", nil},
		{"Secure Boot without its keys", `<feature enabled="yes" name="enrolled-keys"></feature>`, `<feature enabled="no" name="enrolled-keys"></feature>`, "firmware: uefi, lab file: uefi-secure", secure},
		{"Secure Boot, and nothing of its keys", `<feature enabled="yes" name="enrolled-keys"></feature>`, "", "", secure},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, l := newFake(), oneHost()
			if tt.change != nil {
				l = oneHost(tt.change)
			}
			b := newTestServer(t, l, f, virt.Config{})
			check(t, b.Create(t.Context(), "master-0"))
			wantDetails(t, b, virt.ConditionOK)
			f.edit(t, tt.before, tt.after)
			if tt.want == "" {
				wantDetails(t, b, virt.ConditionOK)
				return
			}
			wantDetails(t, b, virt.ConditionDrifted, tt.want)
			check(t, b.Apply(t.Context(), "master-0"))
			wantDetails(t, b, virt.ConditionOK)
		})
	}
}

// withXML gives a machine changes of its domain XML.
func withXML(changes ...lab.XMLChange) func(*lab.Host) {
	return func(h *lab.Host) { h.VM.XML = changes }
}

// wantDetails checks the condition of the only machine, and all that the plan says about it.
func wantDetails(t *testing.T, b *testServer, want virt.Condition, details ...string) {
	t.Helper()
	plan, err := b.Plan(t.Context(), nil)
	check(t, err)
	if len(plan) != 1 || plan[0].Condition != want || strings.Join(plan[0].Details, "\n") != strings.Join(details, "\n") {
		t.Fatalf("plan %+v, want %s %q", plan, want, details)
	}
}

// TestAutostartChangesAtOnce tells a change of the lab file from one by virsh, and says of neither that the machine has to be stopped.
func TestAutostartChangesAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	with := func(h *lab.Host) { h.VM.Autostart = true }
	for name, act := range map[string]func(*testServer) error{
		"apply":  func(b *testServer) error { return b.Apply(ctx, "master-0") },
		"create": func(b *testServer) error { return b.Create(ctx, "master-0") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			b := newTestServer(t, oneHost(with), f, virt.Config{})
			check(t, b.Apply(ctx, "master-0"))
			wantDetails(t, b, virt.ConditionOK)

			b.use(t, oneHost())
			wantDetails(t, b, virt.ConditionChanged, "autostart: yes, lab file: no: bootlab vm apply changes it at once")
			check(t, act(b))
			wantDetails(t, b, virt.ConditionOK)
			b.use(t, oneHost(with))
			wantDetails(t, b, virt.ConditionChanged, "autostart: no, lab file: yes: bootlab vm apply changes it at once")
			check(t, act(b))
			wantDetails(t, b, virt.ConditionOK)
			check(t, f.SetAutostart(ctx, b.List(ctx)[0].UUID, false))
			wantDetails(t, b, virt.ConditionDrifted, "autostart: no, lab file: yes: bootlab vm apply changes it at once")
			check(t, act(b))
			wantDetails(t, b, virt.ConditionOK)
		})
	}
}
