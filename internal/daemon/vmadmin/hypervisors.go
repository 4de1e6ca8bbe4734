package vmadmin

import (
	"context"
	"net/http"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/virt"
)

// Hypervisors implements httpd.Backend.
func (m *Machines) Hypervisors(ctx context.Context) ([]api.Hypervisor, error) {
	all := []api.Hypervisor{}
	for _, v := range m.deps.Virt.Capacities(ctx) {
		h := api.Hypervisor{
			Name: v.Hypervisor, CPUs: v.Node.CPUs, Memory: v.Node.Memory, Free: v.Node.Free, Allocated: v.Allocated, Others: v.Others,
			VMs: v.Machines, Running: v.Running, Pools: []api.StoragePool{},
		}
		if v.Err != nil {
			h.Err = v.Err.Error()
		}
		for _, p := range v.Pools {
			h.Pools = append(h.Pools, api.StoragePool(p))
		}
		all = append(all, h)
	}
	return all, nil
}

// Network implements httpd.Backend.
func (m *Machines) Network(ctx context.Context, hypervisor, network string, action api.NetworkAction) (api.VMPlan, error) {
	v := m.deps.Virt
	do := v.ApplyNetwork
	if action == api.NetworkDelete {
		do = v.DeleteNetwork
	}
	var p virt.Comparison
	err := do(ctx, hypervisor, network)
	if err == nil {
		p, err = v.PlanNetwork(ctx, hypervisor, network)
	}
	if err != nil {
		return api.VMPlan{}, &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return vmPlan(p), nil
}
