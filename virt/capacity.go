package virt

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// A Capacity is what a hypervisor of the lab has, and how much of it is allocated.
type Capacity struct {
	Hypervisor string
	Node       Node
	Allocated  uint64 // bytes of memory of the machines of the lab that are placed there, running or not
	Others     uint64 // bytes of memory of what else runs there
	Machines   int    // of the lab, that are placed there
	Running    int    // of these
	Pools      []Pool // sorted by name
	Err        error  // why the hypervisor did not answer; Allocated and Machines are known nevertheless
}

// Capacities returns the capacity of each hypervisor, in the order of the lab. All are asked at the same time, for planWait at most.
func (s *Server) Capacities(ctx context.Context) []Capacity {
	ctx, cancel := context.WithTimeout(ctx, planWait)
	defer cancel()
	t := s.table()
	all := make([]Capacity, len(t.hypervisors))
	var asked sync.WaitGroup
	for i, hv := range t.hypervisors {
		c := &all[i]
		c.Hypervisor = hv.Name
		asked.Go(func() {
			err := s.contained(hv, func(h Hypervisor) (err error) {
				if err := s.measure(ctx, hv, h); err != nil {
					return err
				}
				c.Pools, err = h.Pools(ctx)
				return err
			})
			if err != nil {
				c.Err = s.noAnswer(hv, err)
			}
			slices.SortFunc(c.Pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
		})
	}
	asked.Wait()
	loads := s.loads(s.table()) // a machine may have been found
	for i, hv := range t.hypervisors {
		if l := loads[hv.URI]; l != nil {
			c := &all[i]
			c.Node, c.Allocated, c.Others, c.Machines, c.Running = l.node, l.allocated, l.others, l.machines, l.running
		}
	}
	return all
}
