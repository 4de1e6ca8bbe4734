package api

import (
	"context"
	"net/url"
)

// A Hypervisor is one hypervisor of the lab, and how much of it is allocated. Sizes are in bytes.
type Hypervisor struct {
	Name      string        `json:"name"`
	Err       string        `json:"err,omitempty"` // why it does not answer; what was known before is shown then
	CPUs      int           `json:"cpus"`          // threads
	Memory    uint64        `json:"memory"`
	Free      uint64        `json:"free"`      // memory that programs can have now: unused, and caches
	Allocated uint64        `json:"allocated"` // memory of the machines of the lab that are placed there, running or not
	Others    uint64        `json:"others"`    // memory of what else runs there
	VMs       int           `json:"vms"`       // of the lab, that are placed there, created or not
	Running   int           `json:"running"`   // of these
	Pools     []StoragePool `json:"pools"`
}

// A StoragePool is a storage pool of a hypervisor.
type StoragePool struct {
	Name     string `json:"name"`
	Active   bool   `json:"active"`
	Capacity uint64 `json:"capacity"`
	Free     uint64 `json:"free"`
}

// Hypervisors returns the hypervisors of the lab. They are asked.
func (c *Client) Hypervisors(ctx context.Context) (all []Hypervisor, err error) {
	return all, c.get(ctx, "hypervisors", &all)
}

// NetworkAction is what can be done to a libvirt network that bootlab creates.
type NetworkAction string

// The actions on a libvirt network.
const (
	NetworkApply  NetworkAction = "apply"  // create it, or redefine it as in the lab file; one that is active changes at its next start
	NetworkDelete NetworkAction = "delete" // unless running machines use it
)

// Network does action to a libvirt network of a hypervisor, and returns how it is afterwards.
func (c *Client) Network(ctx context.Context, hypervisor, network string, action NetworkAction) (p VMPlan, err error) {
	path := "hypervisors/" + url.PathEscape(hypervisor) + "/networks/" + url.PathEscape(network)
	return p, c.post(ctx, path, url.Values{"action": {string(action)}}, &p)
}
