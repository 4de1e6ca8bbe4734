//go:build cgo && libvirt_dlopen

package virt

import "libvirt.org/go/libvirt"

// node is Hypervisor.Node.
func (c *libvirtConn) node() (Node, error) {
	info, err := c.c.GetNodeInfo()
	if err != nil {
		return Node{}, plain(err)
	}
	n := Node{CPUs: int(info.Cpus), Memory: info.Memory << 10}
	if stats, err := c.c.GetMemoryStats(libvirt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil { // not every driver has it
		n.Free = (stats.Free + stats.Buffers + stats.Cached) << 10
	} else if free, err := c.c.GetFreeMemory(); err == nil {
		n.Free = free
	}
	return n, nil
}

// pools is Hypervisor.Pools.
func (c *libvirtConn) pools() ([]Pool, error) {
	list, err := c.c.ListAllStoragePools(0)
	if err != nil {
		return nil, plain(err)
	}
	return describeAll(list, describePool, (*libvirt.StoragePool).Free, libvirt.ERR_NO_STORAGE_POOL)
}

func describePool(p *libvirt.StoragePool) (Pool, error) {
	name, err := p.GetName()
	if err != nil {
		return Pool{}, err
	}
	info, err := p.GetInfo()
	if err != nil {
		return Pool{}, err
	}
	return Pool{Name: name, Active: info.State == libvirt.STORAGE_POOL_RUNNING, Capacity: info.Capacity, Free: info.Available}, nil
}

// capabilities is Hypervisor.Capabilities.
func (c *libvirtConn) capabilities(arch, machine, domainType string) (string, error) {
	text, err := c.c.GetDomainCapabilities("", arch, machine, domainType, 0)
	if code(err) == libvirt.ERR_NO_SUPPORT {
		return "", nil
	}
	return text, plain(err)
}

// interfaces is Hypervisor.Interfaces.
func (c *libvirtConn) interfaces() ([]string, error) {
	list, err := c.c.ListAllInterfaces(0)
	if err != nil {
		return nil, plain(err)
	}
	var names []string
	for i := range list {
		if name, err := list[i].GetName(); err == nil {
			names = append(names, name)
		}
		_ = list[i].Free()
	}
	return names, nil
}
