package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/content/unpack"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/daemon/vmadmin"
	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/host/client/hostheader"
	"github.com/bootlab/bootlab/internal/host/process/descriptors"
	"github.com/bootlab/bootlab/internal/host/process/memory"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/tftpd"
	"github.com/bootlab/bootlab/virt"
)

// servers are all servers, in the order in which a boot uses them.
type servers struct {
	dhcp    *dhcpd.Server
	tftp    *tftpd.Server
	dns     *dnsd.Server
	mirrors *mirror.Cache
	http    *httpd.Boot
	admin   *httpd.Admin
	lb      *lbproxy.Server
	virt    *virt.Server
	redfish *redfish.Service

	consoles *consolelog.Log
	vms      *vmadmin.Machines
}

// build makes all servers. Each gets a function that returns its table of the current snapshot.
func (d *Daemon) build() (*servers, error) {
	nbps := firmware.FS(d.cfg.Firmware)
	d.warnMissing(nbps)
	d.shares = d.divide()
	d.boot = boot.New(boot.Deps{
		Table:    table(d, func(s *snapshot.Snapshot) *boot.Table { return s.Boot }),
		Installs: d.installs, Discovered: d.discovered, Leases: leased{d.book}, Neighbours: d.neighbours, Loops: d.loops, Events: d.bus, Now: time.Now,
	})
	s := &servers{}
	var errs [10]error
	s.consoles, errs[0] = d.openConsoles()
	s.dhcp, errs[1] = d.newDHCP()
	s.tftp, errs[2] = d.newTFTP(nbps)
	s.dns, errs[3] = d.newDNS()
	s.mirrors, errs[4] = d.newMirrors()
	s.http, errs[5] = d.newHTTP(nbps, s.mirrors)
	s.lb, errs[6] = d.newBalancers()
	s.virt, errs[7] = d.newVirt(s.consoles)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("set up the servers: %w", err)
	}
	s.vms = vmadmin.New(vmadmin.Deps{Lab: func() *lab.Lab { return d.current.Load().Lab }, Virt: s.virt, Consoles: s.consoles, Events: d.bus})
	s.admin, errs[8] = d.newAdmin(s)
	s.redfish, errs[9] = d.newRedfish(s)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("set up the servers: %w", err)
	}
	return s, nil
}

// serverStates returns the state of each server, by what s asks of it. The interfaces and addresses that they serve are looked at now.
func (d *Daemon) serverStates(s *snapshot.Snapshot) []api.Server {
	states := d.health.States(health.Moment{
		Lab: s.Lab, Interfaces: s.DHCP.Interfaces(), Unreachable: d.virt.Unreachable(), Draining: !d.handover.Stops().IsZero(), Clock: clockNote(d.clock),
		Unconnected: func(iface string) bool { return interfaces.Unconnected(s.Lab, iface) },
	})
	counts := d.panics.Counts()
	for i := range states {
		states[i].Panics = counts[states[i].Name].N
	}
	return states
}

// inState returns the path of a name of package statefile in the state folder of the lab that is in force.
func (d *Daemon) inState(name string) string {
	return filepath.Join(d.current.Load().Lab.Appliance.State, name)
}

func (d *Daemon) newDHCP() (*dhcpd.Server, error) {
	return dhcpd.New(dhcpd.Deps{
		Panics: d.panics.Server(health.DHCP),
		Table:  table(d, func(s *snapshot.Snapshot) *dhcpd.Table { return s.DHCP }),
		Book:   d.book, Events: d.bus, Log: d.serverLog, Registerer: d.registry, Now: d.clock.Now,
		Listen: d.listenDHCP, FromDisk: d.installs.FromDisk, Loops: d.loops,
		Report: func(iface string, err error) { d.health.Opened(health.DHCP, iface, err) },
	})
}

func (d *Daemon) newTFTP(nbps fs.FS) (*tftpd.Server, error) {
	return tftpd.New(tftpd.Config{MaxTransfers: d.shares.TFTPTransfers, SinglePort: d.current.Load().Lab.Appliance.TFTPSingle}, tftpd.Deps{
		Panics:   d.panics.Server(health.TFTP),
		Table:    table(d, func(s *snapshot.Snapshot) *tftpd.Table { return s.TFTP }),
		Firmware: nbps, Scripts: d.boot.ByDatagram(), Leases: nicsByAddr{d.book}, Senders: d.neighbours, Events: d.bus, Log: d.serverLog, Registerer: d.registry,
	})
}

func (d *Daemon) newDNS() (*dnsd.Server, error) {
	return dnsd.New(dnsd.Config{MaxTCP: d.shares.DNSConnections, MaxForwards: d.shares.DNSForwards}, dnsd.Deps{
		Panics:    d.panics.Server(health.DNS),
		Table:     table(d, func(s *snapshot.Snapshot) *dnsd.Table { return s.DNS }),
		OnSegment: new(interfaces.Segments).Contain,
		Leases:    leaseNames{d}, Updates: updater{d}, Cookies: cookieSecrets{d.store, d.saver}, Now: time.Now, Log: d.serverLog, Registerer: d.registry,
	})
}

func (d *Daemon) newMirrors() (*mirror.Cache, error) {
	return mirror.New(mirror.Config{Dir: d.inState(statefile.Mirrors)}, mirror.Deps{
		Mirrors: func() []*lab.Mirror { return d.current.Load().Lab.Mirrors },
		Own:     func(a netip.Addr) bool { return hostheader.OwnAddr(d.current.Load().Lab, a) },
		Admin:   func() []netip.AddrPort { return d.current.Load().Lab.Appliance.Admin },
		Events:  d.bus, Registerer: d.registry, Log: d.serverLog, Now: time.Now,
	})
}

func (d *Daemon) newHTTP(nbps fs.FS, mirrors *mirror.Cache) (*httpd.Boot, error) {
	return httpd.NewBoot(httpd.BootConfig{Limits: httpd.Limits{Connections: d.shares.HTTPRequests}}, httpd.BootDeps{
		Panics: d.panics.Server(health.HTTP),
		Table:  table(d, func(s *snapshot.Snapshot) *httpd.Table { return s.HTTP }),
		Boot:   d.boot, Firmware: nbps, Leases: nicsByAddr{d.book}, Mirrors: mirrors, Events: d.bus, Registerer: d.registry, Log: d.serverLog, Now: time.Now,
	})
}

func (d *Daemon) newBalancers() (*lbproxy.Server, error) {
	return lbproxy.New(lbproxy.Config{
		Connections: d.shares.Balanced, BackendConnections: d.shares.Backends, Sessions: d.shares.Sessions, Checks: d.shares.Checks, Memory: memory.Limit(os.DirFS("/")), ACME: d.inState(statefile.ACME),
	}, lbproxy.Deps{
		Panics:    d.panics.Server(health.LB),
		AccessLog: d.log, // who turns it on wants each line
		Events:    d.bus, Log: d.serverLog, Registerer: d.registry, Now: time.Now,
		Listen: d.listenBalancer, ListenPacket: d.listenPacketBalancer,
		Addresses: backendAddresses{d}, WasUp: func(balancer, key string) bool { return d.healthyOnce.has(balancer, key) }, Drains: drains{d.store}, RuntimeBackends: runtimeBackends{d.store},
	})
}

func (d *Daemon) newVirt(consoles *consolelog.Log) (*virt.Server, error) {
	return virt.New(virt.Config{ShutdownWait: shutdownWait}, virt.Deps{
		Panics: d.panics.Server(health.Virt),
		Table:  table(d, func(s *snapshot.Snapshot) *virt.Table { return s.Virt }),
		Events: d.bus, Log: d.serverLog, Registerer: d.registry, Now: time.Now,
		Unpacker:   unpack.New(d.inState(statefile.Unpacked)),
		Starts:     serverstate.Starts(d.store, d.saver),
		Placements: serverstate.Placements(d.store, d.saver), NextBoots: serverstate.NextBoots(d.store, d.saver),
		Answered: serverstate.Answered(d.store, d.saver),
		Consoles: consoles,
		Driver:   &virt.Processes{Program: d.cfg.Program, Confine: d.hypervisorPaths, Log: d.log},
	})
}

// openConsoles opens the log of serial consoles. Lines that matter become events.
func (d *Daemon) openConsoles() (*consolelog.Log, error) {
	kinds := map[consolelog.Meaning]event.Kind{
		consolelog.Panic: event.ConsolePanic, consolelog.Emergency: event.ConsoleEmergency, consolelog.NoBootDevice: event.ConsoleNoBootDevice,
	}
	return consolelog.Open(consolelog.Config{Dir: d.inState(statefile.Consoles)}, consolelog.Deps{
		Log: d.serverLog, Now: time.Now, Registerer: d.registry, Found: func(f consolelog.Finding) {
			d.bus.Record(event.Event{Kind: kinds[f.Meaning], Host: f.Host, Detail: f.Line})
		},
	})
}

// dhcpSockets is how many sockets DHCP has on an interface: two ports, ICMP, router solicitations, and three for packets.
const dhcpSockets = 7

// divide divides the process's file descriptors among the servers.
func (d *Daemon) divide() descriptors.Shares {
	s := d.current.Load()
	sockets := dhcpSockets*len(s.DHCP.Interfaces()) + len(endpoints(s.Lab))
	for _, b := range s.Lab.Balancers {
		sockets += b.Listen.Ports()
	}
	if len(s.Lab.Redfish.Listen) > 0 {
		sockets += redfishConnections
	}
	most := memory.Limit(os.DirFS("/"))
	limit := descriptors.Limit(most)
	logLimits(d.log, limit, descriptors.Enough(sockets), most)
	return descriptors.Divide(limit, sockets)
}

// logLimits logs what the limits of connections and requests follow from, where that is not what an operator may expect. Bytes of memory are
// math.MaxInt64 where no limit is known.
func logLimits(log *slog.Logger, limit, enough int, bytes int64) {
	if limit < enough {
		log.Warn("the limit of open files, or of memory, is low: a few clients can keep others out; set LimitNOFILE or MemoryMax in the unit", "limit", limit, "enough", enough)
	}
	if bytes == math.MaxInt64 {
		log.Info("no memory limit of a control group is known: connections and requests are limited by open files only, as if there were memory for all; "+
			"set MemoryMax in the unit, or --memory of the container", "limit", limit)
	}
}

// shutdownWait is how long a virtual machine has to shut down.
const shutdownWait = 20 * time.Second

// warnMissing logs which network boot programs are missing from the binary.
func (d *Daemon) warnMissing(nbps fs.FS) {
	if missing := firmware.Missing(nbps); len(missing) > 0 {
		d.log.Warn("network boot programs are missing: build with make, or name a folder that has them with --firmware",
			slog.Any("files", missing))
	}
}

// warnPrograms logs which boot programs are missing that machines of l need: those of architectures that pools name, and signed ones that hosts
// need for Secure Boot.
func (d *Daemon) warnPrograms(l *lab.Lab) {
	nbps := firmware.FS(d.cfg.Firmware)
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile == nil {
				continue
			}
			for _, a := range p.Archs {
				if file := dhcpd.Program(a); file != "" && !firmware.Has(nbps, file) {
					d.log.Warn("machines of a pool cannot boot: name a folder that has their boot program with --firmware",
						"file", file, "network", n.Name, "pool", p.Name, "arch", a)
				}
			}
		}
	}
	i := slices.IndexFunc(l.Hosts, func(h *lab.Host) bool { return h.Profile != nil && h.Chain == lab.ChainGRUB })
	if i < 0 {
		return
	}
	if missing := firmware.MissingSigned(nbps); len(missing) > 0 {
		d.log.Warn("hosts with chain grub cannot boot: apt-get install shim-signed grub-efi-amd64-signed, or name a folder that has the files with --firmware",
			slog.Any("files", missing), slog.String("host", l.Hosts[i].Name))
	}
}
