package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/media"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/host/client/hostheader"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/virt"
)

const (
	redfishConnections = 64              // open at one time
	redfishRestart     = 5 * time.Minute // that a machine has to shut down before a graceful restart fails
)

// newRedfish makes the Redfish service, which serves where the lab says so.
func (d *Daemon) newRedfish(s *servers) (*redfish.Service, error) {
	contained := d.panics.Server(health.Redfish)
	inForce := func() *lab.Lab { return d.current.Load().Lab }
	loader := media.New(s.virt, contained, func(at netip.AddrPort) error {
		l := inForce()
		return media.CheckAddress(l.Appliance.Admin, func(a netip.Addr) bool { return hostheader.OwnAddr(l, a) }, at)
	})
	own := func(host string, port uint16) bool {
		l := inForce()
		return hostheader.Own(l, l.Redfish.Listen, host, port)
	}
	return redfish.New(redfish.Config{Connections: redfishConnections}, redfish.Deps{
		Lab: inForce, Machines: &metal{d: d, virt: s.virt, media: loader},
		Log: d.serverLog, Registerer: d.registry, Now: time.Now, Own: own, Certificate: d.redfishCertificate, Panics: contained,
	})
}

// metal shows the virtual machines as metal: it implements redfish.Machines.
type metal struct {
	d     *Daemon
	virt  *virt.Server
	media *media.Loader
}

// List implements redfish.Machines.
func (m *metal) List(ctx context.Context) (all []redfish.Machine) {
	l, vms := m.d.current.Load().Lab, m.virt.ByHost(ctx)
	for _, name := range slices.Sorted(maps.Keys(vms)) {
		if h := l.Host(name); h != nil && h.VM != nil {
			all = append(all, m.machine(h, vms[name]))
		}
	}
	return all
}

// Get implements redfish.Machines.
func (m *metal) Get(ctx context.Context, name string) (redfish.Machine, bool) {
	h := m.d.current.Load().Lab.Host(name)
	if h == nil || h.VM == nil {
		return redfish.Machine{}, false
	}
	status, ok := m.virt.ByHost(ctx)[name]
	if !ok {
		status = virt.Status{Host: name, State: virt.StateUnknown, Err: "its hypervisor has not answered yet"}
	}
	return m.machine(h, status), true
}

// powerState returns what Redfish calls the power of a virtual machine.
func powerState(s virt.Status) redfish.PowerState {
	switch p := vmadmin.PowerOf(s); {
	case s.State == virt.StateStopping:
		return redfish.PowerPoweringOff
	case p.Off():
		return redfish.PowerOff
	case p == machine.PowerOn:
		return redfish.PowerOn
	case p == machine.PowerPaused:
		return redfish.PowerPaused
	}
	return redfish.PowerUnknown
}

// targets are the boot devices of virtual machines and what Redfish calls them.
var targets = map[virt.BootDevice]redfish.Target{
	virt.BootDefault: redfish.TargetNone, virt.BootNetwork: redfish.TargetPxe, virt.BootDisk: redfish.TargetHdd, virt.BootCD: redfish.TargetCd,
}

func (m *metal) machine(h *lab.Host, s virt.Status) redfish.Machine {
	next := m.virt.NextBoot(h.Name)
	r := redfish.Machine{
		Name: h.Name, FQDN: h.FQDN, UUID: s.UUID, Serial: cmp.Or(h.Serial, h.Name), Hypervisor: s.Hypervisor, Power: powerState(s),
		Absent: s.State == virt.StateAbsent, ARM: h.VM.Arch == lab.ArchARM64, CPUs: h.VM.CPUs, Memory: h.VM.Memory, Firmware: h.VM.Firmware,
		Boot: redfish.Boot{Target: targets[next.Device], Continuous: next.Always}, Media: next.Media.URL,
	}
	if s.State == virt.StateUnknown {
		r.Err = s.Err
	}
	for _, disk := range h.VM.Disks {
		r.Disks = append(r.Disks, disk.Size)
	}
	for _, as := range h.Interfaces() {
		r.NICs = append(r.NICs, as.MACs...)
	}
	return r
}

// Reset implements redfish.Machines.
func (m *metal) Reset(ctx context.Context, name string, how redfish.ResetType) error {
	if how == redfish.ResetGracefulRestart { // its ctx ends with the service, not with a client
		return forRedfish(m.restart(ctx, name))
	}
	ctx = context.WithoutCancel(ctx) // a client that goes away leaves no machine half way
	var err error
	switch how {
	case redfish.ResetOn, redfish.ResetForceOn:
		err = m.virt.Start(ctx, name)
	case redfish.ResetForceOff:
		err = m.virt.Stop(ctx, name, virt.StopForce, 0)
	case redfish.ResetForceRestart, redfish.ResetPowerCycle:
		err = m.virt.Restart(ctx, name)
	case redfish.ResetGracefulShutdown:
		err = m.virt.Stop(ctx, name, virt.StopRequest, 0)
	case redfish.ResetPushPowerButton:
		if is, _ := m.Get(ctx, name); is.Power == redfish.PowerOff {
			err = m.virt.Start(ctx, name)
		} else {
			err = m.virt.Stop(ctx, name, virt.StopRequest, 0)
		}
	default:
		err = fmt.Errorf("reset type %s is not supported", how)
	}
	return forRedfish(err)
}

// restart shuts a machine down and starts it again.
func (m *metal) restart(ctx context.Context, name string) error {
	if err := m.virt.Stop(ctx, name, virt.StopShutdown, redfishRestart); err != nil {
		return err
	}
	return m.virt.Start(context.WithoutCancel(ctx), name) // it has a short timeout of its own
}

// forRedfish marks the errors after which a client should try again.
func forRedfish(err error) error {
	switch {
	case errors.Is(err, virt.ErrBusy):
		return fmt.Errorf("%w: %w", redfish.ErrBusy, err)
	case virt.IsUnreachable(err):
		return fmt.Errorf("%w: %w", redfish.ErrDown, err)
	}
	return err
}

// SetBoot implements redfish.Machines.
func (m *metal) SetBoot(ctx context.Context, name string, b redfish.Boot) error {
	device := map[redfish.Target]virt.BootDevice{
		redfish.TargetPxe: virt.BootNetwork, redfish.TargetUEFIHTTP: virt.BootNetwork, redfish.TargetHdd: virt.BootDisk, redfish.TargetCd: virt.BootCD,
	}[b.Target]
	return forRedfish(m.virt.SetBoot(ctx, name, device, virt.BootStarts(b.Continuous)))
}

// Insert implements redfish.Machines.
func (m *metal) Insert(ctx context.Context, name string, i redfish.Image) error {
	return forRedfish(m.media.Insert(ctx, name, i, m.d.current.Load().Lab.Redfish.MaxMedia))
}

// Eject implements redfish.Machines.
func (m *metal) Eject(ctx context.Context, name string) error {
	err := m.virt.EjectMedia(context.WithoutCancel(ctx), name)
	if err == nil {
		m.media.ForgetEnded(name)
	}
	return forRedfish(err)
}
