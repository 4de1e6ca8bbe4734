package daemon

import (
	"context"
	"log/slog"

	"github.com/bootlab/bootlab/internal/daemon/privileges"
	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/importer"
	"github.com/bootlab/bootlab/virt"
)

// HypervisorProcess makes this process the one of a hypervisor, if a daemon has started it for that, and does not return then.
// The program that Config.Program names calls it first of all.
func HypervisorProcess() { virt.HypervisorProcess() }

// hypervisorPaths returns what the process of a hypervisor may open; nil: no limit.
func (d *Daemon) hypervisorPaths(uri string) *confine.Paths {
	if d.confined == nil || !d.current.Load().Lab.Appliance.Confine {
		return nil
	}
	return privileges.Hypervisor(uri)
}

// ReadMachines reads the domains, networks and volumes of the hypervisor at a libvirt URI, without a daemon. program calls
// HypervisorProcess first of all.
func ReadMachines(ctx context.Context, program, uri string) (*importer.Machines, error) {
	p := &virt.Processes{Program: program, Log: slog.New(slog.DiscardHandler)}
	inv, err := p.ReadInventory(ctx, uri)
	if err != nil {
		return nil, err
	}
	m := &importer.Machines{URI: uri, Networks: inv.Networks, Volumes: map[string]importer.Volume{}}
	for _, d := range inv.Domains {
		m.Domains = append(m.Domains, importer.Domain{Name: d.Name, XML: d.XML})
	}
	for key, v := range inv.Volumes {
		m.Volumes[key] = importer.Volume{
			Pool: v.Pool, Name: v.Name, Format: v.Format, Size: lab.Size(v.Capacity), Missing: v.Path == "", Err: v.Err,
		}
	}
	return m, nil
}

// CheckHypervisors asks the hypervisors of a lab for what its machines need, without a daemon. program calls HypervisorProcess first
// of all. missing has what is not there, unknown what a hypervisor could not tell.
func CheckHypervisors(ctx context.Context, program string, l *lab.Lab) (missing, unknown lab.Problems, err error) {
	table, err := virt.Compile(l)
	if err != nil {
		return nil, nil, err
	}
	missing, unknown = virt.Survey(ctx, &virt.Processes{Program: program, Log: slog.New(slog.DiscardHandler)}, table)
	return missing, unknown, nil
}
