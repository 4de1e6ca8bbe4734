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
