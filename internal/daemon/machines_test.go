package daemon_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/virt"
)

// TestOneMachineState: hosts, clusters and why say the same of each machine, of a cluster and of none, armed, done and lost; the appliance is none.
func TestOneMachineState(t *testing.T) {
	t.Parallel()
	r := newRig(t, "10.125.31.1")
	r.write(r.read() + `
  app: {mac: 52:54:00:00:12:09, ip: 10.125.31.1, role: appliance}
  alone: {mac: 52:54:00:00:12:04, ip: 10.125.31.24}
  cp: {mac: 52:54:00:00:12:02, ip: 10.125.31.22, cluster: prod, role: master}
  work: {mac: 52:54:00:00:12:03, ip: 10.125.31.23, cluster: prod, role: worker, profile: p}
profiles: {p: {kernel: k, install_to: /dev/vda}}
clusters: {prod: {kind: kubernetes, address: 10.125.31.10}}
`)
	r.start()
	for _, host := range []string{"", "work"} {
		if host != "" {
			if _, err := r.client.MarkInstalled(t.Context(), host); err != nil {
				t.Fatal(err)
			}
		}
		r.until("one state of each machine, everywhere", func() bool {
			hosts, err := r.client.Hosts(t.Context())
			clusters, errs := r.client.Clusters(t.Context())
			if err != nil || errs != nil || len(clusters) != 1 {
				t.Fatal(err, errs, clusters)
			}
			of := map[string]api.ClusterMachine{}
			for _, m := range clusters[0].Machines {
				of[m.Host] = m
			}
			same := len(hosts) > 4
			for _, h := range hosts {
				why, err := r.client.Why(t.Context(), h.Name)
				if err != nil {
					t.Fatal(err)
				}
				m, in := of[h.Name]
				same = same && (h.Role == "appliance") == (h.MachineStage == "") && why.MachineStage == h.MachineStage && why.MachineWhy == h.MachineWhy &&
					(!in || m.MachineWhy == h.MachineWhy && m.Stage == h.MachineStage)
				if h.MachineStage == "serving" || h.MachineStage == "running" {
					t.Errorf("%s, which nothing was received from, is %s: %s", h.Name, h.MachineStage, h.MachineWhy)
				}
			}
			return same // a measurement may come between the questions
		})
	}
}

// TestBackendAlone: why says of a host that only a balancer knows what its check measured.
func TestBackendAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "10.125.33.1")
	r.write(r.read() + `
  web1: {mac: 52:54:00:00:12:04, ip: 10.125.33.9}
balancers:
  web: {listen: "10.125.33.1:80", backends: ["web1:81"], check: {interval: 100ms, fall: 1}}
`)
	r.start()
	r.until("why says that the check of the balancer fails", func() bool {
		why, err := r.client.Why(t.Context(), "web1")
		return err == nil && why.State == "stopped" && why.MachineStage == "failing" && why.Stage == "balancer" && !why.Since.IsZero() &&
			strings.HasPrefix(why.Cause, "it does not answer at its backend address 10.125.33.9:81: the tcp check of balancer web fails: ")
	})
}

// TestOffByItsController: why asks the controller, and hosts and clusters do not. Its cause is that the machine is off; what the machine is, is
// what hosts shows, and a fact says so.
func TestOffByItsController(t *testing.T) {
	t.Parallel()
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"PowerState": "Off"}`)) }))
	t.Cleanup(controller.Close)
	bmc := "bmc: {redfish: \"" + controller.URL + "/redfish/v1/Systems/1\"}"
	r := newRig(t, "10.125.32.1")
	r.write(r.read() + `
  alone: {mac: 52:54:00:00:12:04, ip: 10.125.32.24, ` + bmc + `}
  cp: {mac: 52:54:00:00:12:02, ip: 10.125.32.22, cluster: prod, role: master, ` + bmc + `}
clusters: {prod: {kind: kubernetes, address: 10.125.32.10}}
`)
	r.start()
	for _, host := range []string{"alone", "cp"} {
		r.until("why says that the machine is off", func() bool { // a busy controller may be late
			why, err := r.client.Why(t.Context(), host)
			hosts, errs := r.client.Hosts(t.Context())
			if err != nil || errs != nil || why.State != "stopped" {
				return false
			}
			h := hosts[slices.IndexFunc(hosts, func(h api.Host) bool { return h.Name == host })]
			fact := "bootlab hosts, which asks no BMC, shows it as " + h.MachineStage + ": " + h.MachineWhy
			if why.MachineStage != h.MachineStage || why.MachineWhy != h.MachineWhy || why.Cause != "it is off, its BMC says" || !slices.Contains(why.Facts, fact) {
				t.Errorf("%s: %s, %q; as a machine %s, %q, in hosts %s, %q; facts %q", host, why.State, why.Cause, why.MachineStage, why.MachineWhy, h.MachineStage, h.MachineWhy, why.Facts)
			}
			return true
		})
	}
}

// TestBad: the API's word for what is wrong with a machine is the one of package machine.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, s := range []machine.Stage{machine.Unknown, machine.Off, machine.Waiting, machine.Booting, machine.Stopped, machine.Installing, machine.Starting,
		machine.Serving, machine.Running, machine.Failing, machine.Gone} {
		if got := (api.Host{MachineStage: string(s)}).Bad(); got != s.Bad() {
			t.Errorf("%s: bad is %v in the API, %v in package machine", s, got, s.Bad())
		}
	}
}

// TestVMConditions: the API's words for how a virtual machine compares with the lab file are those of package virt.
func TestVMConditions(t *testing.T) {
	t.Parallel()
	for is, want := range map[api.VMCondition]virt.Condition{
		api.VMOK: virt.ConditionOK, api.VMMissing: virt.ConditionMissing, api.VMChanged: virt.ConditionChanged, api.VMDrifted: virt.ConditionDrifted,
		api.VMUnstarted: virt.ConditionUnstarted, api.VMRestart: virt.ConditionRestart, api.VMOrphaned: virt.ConditionOrphaned,
		api.VMDuplicated: virt.ConditionDuplicated, api.VMUnknown: virt.ConditionUnknown,
	} {
		if string(is) != string(want) {
			t.Errorf("%s in the API, %s in package virt", is, want)
		}
	}
}
