package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/adoption"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/host/client/hostheader"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/virt"
)

// newAdmin makes the admin server.
func (d *Daemon) newAdmin(s *servers) (*httpd.Admin, error) {
	token, err := httpd.LoadToken(d.inState(statefile.Token))
	if err != nil {
		return nil, err
	}
	backend := struct {
		*adminBackend
		*clusters
		*vmadmin.Machines
	}{&adminBackend{d}, d.clusters, s.vms}
	own := func(host string, port uint16) bool {
		l := d.current.Load().Lab
		return hostheader.Own(l, l.Appliance.Admin, host, port)
	}
	return httpd.NewAdmin(httpd.AdminConfig{Token: token, Limits: httpd.Limits{Connections: d.shares.Admin}}, httpd.AdminDeps{
		Backend: backend, Gatherer: d.registry, Registerer: d.registry, Log: d.serverLog, Now: time.Now, Own: own, Panics: d.panics.Server(health.Admin),
		NewToken: func(ctx context.Context) (string, error) {
			return storingResult(ctx, d, func(context.Context) (string, error) { return httpd.NewToken(d.inState(statefile.Token)) })
		},
	})
}

// An adminBackend answers what the admin API and the dashboard ask. A request loads the snapshot once, at its begin, and passes it down.
type adminBackend struct{ *Daemon }

// Status implements httpd.Backend.
func (b *adminBackend) Status(context.Context) api.Status {
	s := b.current.Load()
	last := b.reloads.result()
	warnings, faults := b.currentWarnings(s)
	for _, text := range append(b.stateWarnings(s.Lab), b.panicWarnings()...) {
		warnings = append(warnings, &lab.Problem{Message: text})
	}
	if err := b.ports.Failed(); err != "" {
		warnings = append(warnings, &lab.Problem{Message: err})
	}
	status := api.Status{
		Lab: s.Lab.Name, LabFile: b.labFile, Version: b.cfg.Version, Generation: s.Gen, Started: b.started, Stopping: b.handover.Stops(), Namespace: b.namespace,
		Servers: b.serverStates(s), Conditions: b.conditions(s), Addresses: b.addresses.Status(), Balancers: b.healthyOnce.balancers(),
		Store: b.storeWatch.Status(), Reload: last, Faults: faults, Warnings: warnings, StateLost: b.lossText(s.Lab),
		Files: b.confined.Files, Calls: b.confined.Calls,
	}
	return status.WithStates()
}

// Generation implements httpd.Backend.
func (b *adminBackend) Generation() uint64 { return b.current.Load().Gen }

// Hosts implements httpd.Backend.
func (b *adminBackend) Hosts(ctx context.Context) []api.Host {
	observed := b.clusters.observe(ctx, b.current.Load())
	states := b.clusters.states(observed)
	out := make([]api.Host, 0, len(observed.Lab.Hosts))
	for _, h := range observed.Lab.Hosts {
		a := b.host(h, observed)
		a.MachineStage, a.MachineWhy = string(states[h.Name].Stage), states[h.Name].Why
		out = append(out, a)
	}
	return out
}

func (b *adminBackend) host(h *lab.Host, observed observed) api.Host {
	a := api.Host{Name: h.Name, FQDN: h.FQDN, MACs: h.MACs, IP6: h.IP6, Role: h.Role}
	a.Power, _ = vmadmin.SwitchOf(h)
	a.IP, _ = b.nicAddrs(observed.Lab).OfHost(h)
	status := b.installs.Status(h)
	a.Install, a.Assumed, a.Note = status.Text(), status.Assumed, status.Note(h.Name)
	if status.State == install.Unknown {
		a.Unknown = status.Since
	}
	if h.Network != nil {
		a.Network = h.Network.Name
	}
	for _, as := range h.Interfaces()[1:] {
		n := api.NIC{MAC: as.MACs[0], IP6: as.IP6, FQDN: as.FQDN}
		n.IP, _ = b.nicAddrs(observed.Lab).OfHost(as)
		if as.Network != nil {
			n.Network = as.Network.Name
		}
		a.NICs = append(a.NICs, n)
	}
	if h.Cluster != nil {
		a.Cluster = h.Cluster.Name
	}
	if h.Profile != nil {
		a.Profile, a.Disk = h.Profile.Name, overwrites(h)
	}
	if h.VM != nil {
		vm := observed.vms[h.Name]
		a.VM, a.Hypervisor = string(cmp.Or(vm.State, virt.StateUnknown)), vm.Hypervisor
	}
	b.lastSeen(&a)
	return a
}

// overwrites returns the disk that an installation of h overwrites; empty: its profile installs nothing.
func overwrites(h *lab.Host) string {
	if h.Profile == nil || h.Profile.Install == lab.InstallNever {
		return ""
	}
	return cmp.Or(h.Profile.InstallTo, "its disk")
}

// Plan implements httpd.Backend.
func (b *adminBackend) Plan(_ context.Context, host string, secrets api.Secrets) (string, error) {
	p, err := plan.Of(b.current.Load(), host)
	if err != nil {
		return "", &api.Error{Status: http.StatusNotFound, Message: err.Error()}
	}
	if secrets != api.Shown {
		p.Hide()
	}
	var text strings.Builder
	err = p.WriteText(&text)
	return text.String(), err
}

// LabKeys implements httpd.Backend.
func (c *adminBackend) LabKeys(_ context.Context, host string) (map[string]string, error) {
	l := c.current.Load().Lab
	if host != "" && l.Find(host) == nil {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no host %q in lab %s", host, l.Name)}
	}
	return plan.KeysOf(l, host), nil
}

// Balancers implements httpd.Backend.
func (b *adminBackend) Balancers(context.Context) []api.Balancer {
	return b.balancers(b.current.Load().Lab)
}

func (b *adminBackend) balancers(l *lab.Lab) []api.Balancer {
	out := []api.Balancer{}
	for _, s := range b.servers.lb.Status() {
		one := api.Balancer{Name: s.Name, Listen: s.Listen.String(), Mode: string(s.Mode), Connections: s.Connections, Queued: s.Queued, Backends: []api.Backend{}}
		for _, m := range s.Backends {
			one.Backends = append(one.Backends, b.explain(b.healthyOnce.backend(s.Name, m), l.Host(m.Host)))
		}
		out = append(out, one)
	}
	return out
}

// explain says of a bootstrap machine that is no longer needed why it gets no connections: no admin has drained it. h may be nil.
func (b *adminBackend) explain(one api.Backend, h *lab.Host) api.Backend {
	if one.State.Drained() && h != nil && h.Role == lab.RoleBootstrap && h.Cluster != nil && !b.clusters.record(h.Cluster.Name).Removed.IsZero() {
		one.Reason = "the cluster serves, and does not need its bootstrap any more"
	}
	return one
}

// Backend implements httpd.Backend.
func (b *adminBackend) Backend(ctx context.Context, balancer, name string, change api.BackendChange) ([]api.Backend, error) {
	l := b.current.Load().Lab
	changed, err := storingResult(ctx, b.Daemon, func(ctx context.Context) ([]lbproxy.BackendStatus, error) {
		return b.changeBackend(ctx, l, balancer, name, change)
	})
	switch {
	case errors.Is(err, lbproxy.ErrUnknown):
		return nil, &api.Error{Status: http.StatusNotFound, Message: err.Error(), Hint: "bootlab backend list shows balancers and backends"}
	case errors.Is(err, lbproxy.ErrInLab):
		return nil, &api.Error{Status: http.StatusConflict, Message: err.Error(), Hint: "change the lab file; bootlab backend drain takes a backend out, weight sets its weight"}
	case errors.Is(err, lbproxy.ErrBackend), errors.Is(err, lbproxy.ErrWeight):
		return nil, &api.Error{Status: http.StatusBadRequest, Message: err.Error()}
	case err != nil:
		return nil, err
	}
	out := make([]api.Backend, 0, len(changed))
	for _, m := range changed {
		if change.Action == api.BackendRemove {
			out = append(out, api.Backend{Name: m.Name, Addr: lab.BackendText(m.Addr)}) // it has no state any more
			continue
		}
		out = append(out, b.explain(b.healthyOnce.backend(balancer, m), l.Host(m.Host)))
	}
	return out, nil
}

// changeBackend does what is to be done to the backends that name is of, and returns what became of them.
func (b *adminBackend) changeBackend(ctx context.Context, l *lab.Lab, balancer, name string, change api.BackendChange) ([]lbproxy.BackendStatus, error) {
	lb := b.servers.lb
	switch change.Action {
	case api.BackendDrain:
		return lb.Drain(ctx, balancer, name)
	case api.BackendReady:
		return lb.Ready(ctx, balancer, name)
	case api.BackendRemove:
		return lb.RemoveBackend(ctx, balancer, name)
	case api.BackendWeight:
		return lb.SetWeight(ctx, balancer, name, change.Weight)
	case api.BackendAdd:
		m, err := runtimeBackend(l, withPort(l, balancer, name))
		if err != nil {
			return nil, err
		}
		m.Balancer, m.Weight, m.Backup = balancer, change.Weight, change.Backup
		return lb.AddBackend(ctx, m)
	}
	return nil, fmt.Errorf("%w: action %q is not known", lbproxy.ErrBackend, change.Action)
}

// withPort adds the port of the balancer to a backend that has none, if there is one only.
func withPort(l *lab.Lab, balancer, backend string) string {
	if _, _, err := net.SplitHostPort(backend); err == nil {
		return backend
	}
	for _, b := range l.Balancers {
		if port := b.Listen.Port(); b.Name == balancer && port != 0 {
			return net.JoinHostPort(strings.Trim(backend, "[]"), strconv.Itoa(int(port)))
		}
	}
	return backend
}

// runtimeBackend returns the backend that HOST:PORT or ADDR:PORT names.
func runtimeBackend(l *lab.Lab, text string) (lbproxy.RuntimeBackend, error) {
	host, port, err := net.SplitHostPort(text)
	number, numErr := strconv.ParseUint(port, 10, 16)
	if err != nil || numErr != nil {
		return lbproxy.RuntimeBackend{}, fmt.Errorf("%q %w: want host:port like worker-0:80 or 10.0.0.7:80", text, lbproxy.ErrBackend)
	}
	h := l.Find(host)
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
	case h == nil:
		return lbproxy.RuntimeBackend{}, fmt.Errorf("%q %w: no host has this name: want a host of the lab or an address", host, lbproxy.ErrBackend)
	default:
		addr4, addr6 := h.NamedAddrs()
		if addr = addr4; !addr.IsValid() {
			addr = addr6
		}
		if !addr.IsValid() {
			return lbproxy.RuntimeBackend{}, fmt.Errorf("host %s %w: it has no ip: want an address", h.Name, lbproxy.ErrBackend)
		}
	}
	m := lbproxy.RuntimeBackend{Addr: netip.AddrPortFrom(addr.Unmap(), uint16(number))}
	if h != nil {
		m.Name, m.Host, m.FQDN = h.Name, h.Name, h.FQDN
	}
	return m, nil
}

// reason returns an error in full: problems of a lab file with their lines.
func reason(err error) string {
	problems, ok := errors.AsType[lab.Problems](err)
	if !ok {
		return err.Error()
	}
	text, list := err.Error(), problems.Error()
	load.Quote(problems)
	return strings.TrimSuffix(strings.Replace(text, list, problems.Detail(), 1), "\n")
}

// Reload implements httpd.Backend.
func (b *adminBackend) Reload(_ context.Context, force api.Force) (api.Reload, error) {
	err := b.Daemon.Reload(force)
	return b.reloads.result(), refusedLab(err)
}

// CheckReload implements httpd.Backend.
func (b *adminBackend) CheckReload(context.Context) (api.Reload, error) {
	inForce := b.current.Load()
	_, err := b.loadNext(inForce, api.Careful)
	return api.Reload{Generation: inForce.Gen}, refusedLab(err)
}

// refusedLab makes an answer of why a lab was refused; nil: it was not.
func refusedLab(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Message: "the lab file was refused; the running lab stays in force", Reason: reason(err)}
}

// unknown returns where machines that are not in the lab are known from.
func (d *Daemon) unknown() adoption.Machines {
	return adoption.Machines{
		Lab:  func() *lab.Lab { return d.current.Load().Lab },
		Book: d.book, Clock: d.clock, Timeline: d.timeline, Reports: d.discovered,
	}
}

// Unknown implements httpd.Backend.
func (b *adminBackend) Unknown(context.Context) []api.UnknownMachine {
	return b.unknown().Unknown()
}

// Adoption implements httpd.Backend.
func (b *adminBackend) Adoption(_ context.Context, mac lab.MAC) (api.Adoption, error) {
	return b.unknown().Adoption(mac)
}

// Backup implements httpd.Backend.
func (b *adminBackend) Backup(ctx context.Context, w io.Writer) error {
	start := time.Now()
	s, err := backup.Write(ctx, w, b.store, backup.Header{Lab: b.current.Load().Lab.Name, Version: b.cfg.Version, Created: start.UTC()})
	if err == nil {
		b.log.Info("state was backed up", "entries", s.Entries, "dur", time.Since(start))
	}
	return err
}
