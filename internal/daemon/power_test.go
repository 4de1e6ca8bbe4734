package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/virt"
)

// TestPowerOfVM: a virtual machine has power until its hypervisor says that it is off. Then only does bootlab down leave it alone, and a control
// plane waits for its workers.
func TestPowerOfVM(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		vm      virt.Status
		power   machine.Power
		redfish redfish.PowerState
		down    string // what bootlab down does about it
	}{
		{virt.Status{State: virt.StateRunning, At: now}, machine.PowerOn, redfish.PowerOn, "stops"},
		{virt.Status{State: virt.StateStopping, At: now}, machine.PowerOn, redfish.PowerPoweringOff, "stops"},
		{virt.Status{State: virt.StatePaused, At: now}, machine.PowerPaused, redfish.PowerPaused, "stops"},
		{virt.Status{State: virt.StateOff, At: now}, machine.PowerOff, redfish.PowerOff, ""},
		{virt.Status{State: virt.StateCrashed, At: now}, machine.PowerCrashed, redfish.PowerOff, ""},
		{virt.Status{State: virt.StateAbsent, At: now}, machine.PowerAbsent, redfish.PowerOff, ""},
		{virt.Status{State: virt.StateUnknown, At: now, Down: now, Err: "it hangs"}, machine.PowerSilent, redfish.PowerUnknown, "reports it hangs"},
		{virt.Status{}, machine.PowerUnasked, redfish.PowerUnknown, "reports its hypervisor has not answered yet"},
	} {
		if got := vmadmin.PowerOf(tt.vm); got != tt.power {
			t.Errorf("%s: power %s, want %s", tt.vm.State, got, tt.power)
		}
		if got := powerState(tt.vm); got != tt.redfish {
			t.Errorf("%s: Redfish %q, want %q", tt.vm.State, got, tt.redfish)
		}
		cl := &lab.Cluster{Hosts: []*lab.Host{{Name: "w", Role: lab.RoleWorker, VM: &lab.VM{}}, {Name: "cp", Role: lab.RoleControlPlane, VM: &lab.VM{}}, {Name: "metal"}}}
		workers, controlPlane, unknown := running(cl, map[string]virt.Status{"w": tt.vm, "cp": tt.vm})
		want := map[string]string{"stops": "1 1 []"}[tt.down]
		switch {
		case tt.down == "":
			want = "0 0 []"
		case want == "":
			want = "0 0 [w: " + tt.down[len("reports "):] + " cp: " + tt.down[len("reports "):] + "]"
		}
		if got := fmt.Sprint(len(workers), len(controlPlane), unknown); got != want {
			t.Errorf("%s: down has %s, want %s", tt.vm.State, got, want)
		}
	}
}
