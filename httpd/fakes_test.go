package httpd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const adminToken = "ADM1N-T0KEN-ADM1N-T0KEN-ADM1N"

// noon is the fakeDaemon's time.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func macOf(n byte) lab.MAC { return lab.MAC{0x52, 0x54, 0, 0, 2, n} }

// A fakeDaemon implements AdminDeps: fixed answers, and a record of the actions it received.
type fakeDaemon struct {
	status     api.Status
	hosts      []api.Host
	leases     []api.Lease
	pools      []api.Pool
	boots      []api.Boot
	discovered []api.UnknownMachine
	balancers  []api.Balancer
	clusters   []api.Cluster
	reloadErr  error
	news       chan event.Event

	unfollowed chan string // the host of each reader that left, once it is noted

	mu   sync.Mutex
	done []string
}

func (h *fakeDaemon) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

func (h *fakeDaemon) Status(context.Context) api.Status        { return h.status }
func (h *fakeDaemon) Generation() uint64                       { return h.status.Generation }
func (h *fakeDaemon) Hosts(context.Context) []api.Host         { return h.hosts }
func (h *fakeDaemon) Balancers(context.Context) []api.Balancer { return h.balancers }
func (h *fakeDaemon) Clusters(context.Context) []api.Cluster   { return h.clusters }

func (h *fakeDaemon) Up(_ context.Context, name string) (api.Cluster, error) {
	h.note("up %s", name)
	return api.Cluster{Name: name}, nil
}

func (h *fakeDaemon) Down(_ context.Context, name string) (api.Cluster, error) {
	h.note("down %s", name)
	return api.Cluster{Name: name}, nil
}

func (h *fakeDaemon) Pools(context.Context) []api.Pool { return h.pools }
func (h *fakeDaemon) Power(_ context.Context, host string, action api.PowerAction) (api.Power, error) {
	return api.Power{Host: host, State: string(action), By: "libvirt kvm1"}, nil
}

func (h *fakeDaemon) SetBoot(_ context.Context, host string, device api.BootDevice, always bool) (api.NextBoot, error) {
	return api.NextBoot{Host: host, Device: device, Always: always, By: "libvirt kvm1"}, nil
}

func (h *fakeDaemon) VMPlan(_ context.Context, hosts []string) (plan []api.VMPlan, _ error) {
	for _, host := range hosts {
		plan = append(plan, api.VMPlan{Host: host, Hypervisor: "kvm1", State: "off", Condition: "drifted", Details: []string{"memory"}})
	}
	return plan, nil
}
func (h *fakeDaemon) Network(_ context.Context, hypervisor, network string, action api.NetworkAction) (api.VMPlan, error) {
	return api.VMPlan{Network: network, Hypervisor: hypervisor, State: "running", Condition: api.VMCondition(action)}, nil
}

func (h *fakeDaemon) Hypervisors(context.Context) (all []api.Hypervisor, _ error) {
	return []api.Hypervisor{}, nil
}

func (h *fakeDaemon) VMs(context.Context) (vms []api.VM, _ error) { return vms, nil }

func (h *fakeDaemon) Leases(_ context.Context, q api.LeaseQuery) (p api.LeasePage) {
	for _, l := range h.leases {
		if l.Holds() {
			p.Holding++
		}
		if q.After.IsValid() && l.IP.Compare(q.After) <= 0 || q.Keep != nil && !q.Keep(&l) {
			continue
		}
		if p.Matching++; len(p.Leases) < q.Limit {
			p.Leases = append(p.Leases, l)
		} else if len(p.Leases) > 0 {
			p.Next = p.Leases[len(p.Leases)-1].IP
		}
	}
	return p
}

func (h *fakeDaemon) Plan(_ context.Context, host string, s api.Secrets) (string, error) {
	if host == "nobody" {
		return "", unknown(host)
	}
	return "plan of " + host + strings.Repeat(", secrets and all", int(s)) + "\n", nil
}

func (h *fakeDaemon) LabKeys(_ context.Context, host string) (map[string]string, error) {
	if host == "nobody" {
		return nil, unknown(host)
	}
	return map[string]string{"hosts." + host: "1"}, nil
}

func unknown(host string) error {
	return &api.Error{Status: 404, Message: "no host " + host, Hint: "bootlab hosts lists them"}
}

func (h *fakeDaemon) Boots(_ context.Context, host string) ([]api.Boot, error) {
	if host == "nobody" {
		return nil, unknown(host)
	}
	if host != "master-1" && host != macOf(2).String() {
		return nil, nil
	}
	return h.boots, nil
}

func (h *fakeDaemon) Why(_ context.Context, host string) (api.Diagnosis, error) {
	if host == "nobody" {
		return api.Diagnosis{}, unknown(host)
	}
	if host == "broken" {
		return api.Diagnosis{}, errors.New("out of order")
	}
	for _, known := range h.hosts { // as the daemon does
		named := func(n api.NIC) bool { return n.FQDN == host || n.MAC.String() == host }
		if slices.ContainsFunc(known.MACs, func(m lab.MAC) bool { return m.String() == host }) || slices.ContainsFunc(known.NICs, named) || known.FQDN == host {
			host = known.Name
		}
	}
	return api.Diagnosis{Host: host, State: "stopped", Stage: event.StageFiles, Since: noon(), Cause: "a file that it loads is not served: <k>", Do: []string{"bootlab images pull"}}, nil
}

func (h *fakeDaemon) Follow(ctx context.Context, host string) (<-chan event.Event, error) {
	if host == "nobody" {
		return nil, unknown(host)
	}
	h.note("follow %s", host)
	context.AfterFunc(ctx, func() { h.note("unfollow %s", host); h.unfollowed <- host })
	return h.news, nil
}

func (h *fakeDaemon) Install(_ context.Context, host string, cycle api.Cycle) (api.Arming, error) {
	h.note("install %s %d", host, cycle)
	if host == "nobody" {
		return api.Arming{}, unknown(host)
	}
	return api.Arming{Host: host, State: "armed", Cycled: cycle == api.CycleNow}, nil
}

func (h *fakeDaemon) MarkInstalled(_ context.Context, host string) (api.Arming, error) {
	h.note("mark %s", host)
	return api.Arming{Host: host, State: "installed"}, nil
}

func (h *fakeDaemon) Unknown(context.Context) []api.UnknownMachine { return h.discovered }

func (h *fakeDaemon) Adoption(_ context.Context, mac lab.MAC) (api.Adoption, error) {
	if mac != h.discovered[0].MAC {
		return api.Adoption{}, unknown(mac.String())
	}
	return api.Adoption{UnknownMachine: h.discovered[0], Names: []string{"j8k2p53"}}, nil
}

func (h *fakeDaemon) VM(_ context.Context, host string, action api.VMAction, opts api.VMOptions) (api.VM, error) {
	h.note("vm %s %s", host, action)
	if opts != (api.VMOptions{}) {
		h.note("%+v", opts)
	}
	return api.VM{Host: host, State: "running"}, nil
}

func (h *fakeDaemon) Snapshots(context.Context, string) ([]api.Snapshot, error) { return nil, nil }

func (h *fakeDaemon) Snapshot(_ context.Context, host string, action api.SnapshotAction, name string) ([]api.Snapshot, error) {
	h.note("snapshot %s %s %s", host, action, name)
	return []api.Snapshot{{Name: name}}, nil
}

func (h *fakeDaemon) Backend(_ context.Context, balancer, backend string, change api.BackendChange) ([]api.Backend, error) {
	h.note("backend %s %s %s", balancer, backend, change.Action)
	if change.Weight > 0 || change.Backup {
		h.note("%+v", change)
	}
	return []api.Backend{{Name: backend, State: api.BackendDraining}}, nil
}

func (h *fakeDaemon) Release(_ context.Context, addr netip.Addr) error {
	h.note("release %s", addr)
	if addr.As4()[3] == 205 {
		return &api.Error{Status: 409, Message: "the store is full"}
	}
	return nil
}

func (h *fakeDaemon) Backup(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "a backup\n")
	return err
}

func (h *fakeDaemon) Import(_ context.Context, leases []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error) {
	h.note("import %d %d %d", len(leases), o, r)
	return api.LeaseImport{Imported: len(leases)}, nil
}

func (h *fakeDaemon) Reload(_ context.Context, force api.Force) (api.Reload, error) {
	h.note("reload %d", force)
	return api.Reload{At: noon(), Generation: 8}, h.reloadErr
}

func (h *fakeDaemon) CheckReload(context.Context) (api.Reload, error) {
	h.note("check reload")
	return api.Reload{Generation: 8}, h.reloadErr
}

func (h *fakeDaemon) State(context.Context) api.State {
	return api.State{Folder: "/var/lib/bootlab", Database: "ABC", Condition: api.StateKnown, Unknown: []string{}, Held: []string{}, Install: []string{}, Pools: []string{}, Markers: []api.StateMarker{}}
}

func (h *fakeDaemon) AcceptState(_ context.Context, database string) (api.State, error) {
	h.note("accept %s", database)
	return h.State(context.Background()), nil
}

// newFakeDaemon is a small OpenShift in the middle of its installation.
func newFakeDaemon() *fakeDaemon {
	at := func(d time.Duration) time.Time { return noon().Add(d) }
	boots := []api.Boot{tale("master-1", noon().Add(-26*time.Hour), "done"), tale("master-1", noon().Add(-4*time.Minute), "failed")}
	last := boots[1].Events[len(boots[1].Events)-1]
	ok := boots[0].Events[len(boots[0].Events)-1]
	ok.At = at(-90 * time.Second)
	h := &fakeDaemon{news: make(chan event.Event), unfollowed: make(chan string, 16), boots: boots}
	h.status = api.Status{
		Lab: "openshift-upi", Version: "v0.1.0", Generation: 7, Started: at(-50 * time.Hour),
		Reload: api.Reload{At: at(-3 * time.Minute), Generation: 7, Detail: "2 hosts added"},
	}
	for _, name := range []string{"dhcpd", "tftpd", "dnsd", "httpd", "lbproxy", "virt"} {
		h.status.Servers = append(h.status.Servers, api.Server{Name: name, Serving: true, Addrs: []string{"0.0.0.0:67"}})
	}
	h.status.Addresses = []api.Address{
		{Addr: netip.MustParseAddr("192.168.131.10"), Interface: "br0", For: "cluster mycluster", State: "added", OK: true, Since: at(-time.Hour)},
		{Addr: netip.MustParseAddr("192.168.131.9"), Interface: "br0", For: "balancer router", State: "in_use", MAC: macOf(2), Host: "master-0", Since: at(-time.Minute),
			Problem: "the machine with MAC " + macOf(2).String() + " (master-0) uses it, so it is not added for balancer router; remove it there, or change balancers.router.listen; bootlab adds it once it is free"},
	}
	states := []struct {
		name, role, profile, install, vm string
		stage                            event.Stage
		last                             *event.Event
	}{
		{"bootstrap", "bootstrap", "rhcos", "installed", "running", event.StageInstall, &ok},
		{"loadbalancer", "appliance", "", "", "", "", nil},
		{"master-0", "control-plane", "rhcos", "installing", "running", event.StageConfig, &ok},
		{"master-1", "control-plane", "rhcos", "booting", "", event.StageFiles, &last},
		{"master-2", "control-plane", "rhcos", "armed", "", "", nil},
		{"worker-0", "worker", "rhcos", "held", "stopped", event.StageScript, &last},
	}
	for i, s := range states {
		h.hosts = append(h.hosts, api.Host{
			Name: s.name, FQDN: s.name + ".mycluster.example.com", MACs: []lab.MAC{macOf(byte(i))}, IP: netip.AddrFrom4([4]byte{192, 168, 131, byte(10 + i)}),
			Network: "cluster", Cluster: "mycluster", Role: s.role, Profile: s.profile, Install: s.install, VM: s.vm, Stage: s.stage, Disk: map[string]string{"rhcos": "/dev/vda"}[s.profile], Last: s.last,
		})
		h.hosts[i].MachineStage = map[string]string{"bootstrap": "running", "master-0": "installing", "master-1": "stopped", "master-2": "unknown", "worker-0": "stopped"}[s.name]
		h.hosts[i].MachineWhy = map[string]string{"master-1": "a transfer broke off", "worker-0": "held after too many attempts"}[s.name]
		if s.vm != "" {
			h.hosts[i].Power = "libvirt"
		}
		h.leases = append(h.leases, api.Lease{IP: h.hosts[i].IP, MAC: macOf(byte(i)), Host: s.name, Reserved: true, Name: s.name, Network: "cluster", Expires: at(11 * time.Hour)})
	}
	h.hosts[1].NICs = []api.NIC{{MAC: macOf(77), IP: netip.MustParseAddr("172.22.0.31"), FQDN: "loadbalancer-provisioning.mycluster.example.com", Network: "provisioning"}}
	h.leases = append(h.leases, api.Lease{IP: netip.MustParseAddr("192.168.131.203"), MAC: lab.MAC{0xde, 0xad, 0xbe, 0xef, 0, 1}, Name: "printer", Network: "cluster", Pool: "guests", Expires: at(40 * time.Minute),
		Since: at(-20 * time.Minute), VendorClass: "udhcp 1.36", RelayPort: "sw-7 eth0/7"})
	for i, s := range []api.LeaseState{api.LeaseConflict, api.LeaseOffered} {
		h.leases = append(h.leases, api.Lease{IP: netip.AddrFrom4([4]byte{192, 168, 131, byte(204 + i)}), MAC: lab.MAC{0xde * byte(i)}, State: s, Network: "cluster", Pool: "guests", Expires: at(time.Minute)})
	}
	h.pools = []api.Pool{{Network: "cluster", Name: "bootstrap", Range: "192.168.131.130-192.168.131.135", Size: 6, Free: 2}, {Network: "cluster", Name: "guests", Range: "192.168.131.200-192.168.131.205", Size: 3}}
	h.balancers = []api.Balancer{
		{Name: "mycluster-api", Listen: "192.168.131.10:6443", Mode: "tcp", Connections: 14, Backends: []api.Backend{
			{Name: "bootstrap", Addr: "192.168.131.11:6443", State: api.BackendUp, Since: at(-40 * time.Minute), Connections: 14},
			{Name: "master-0", Addr: "192.168.131.12:6443", State: api.BackendDown, Since: at(-41 * time.Minute), Reason: "GET /readyz: connection refused"},
			{Name: "master-1", Addr: "192.168.131.13:6443", State: api.BackendDrained, Since: at(-2 * time.Minute)},
		}},
		{Name: "mycluster-ingress-http", Listen: "192.168.131.10:80", Mode: "http", Backends: []api.Backend{
			{Name: "worker-0", Addr: "192.168.131.20:80", State: api.BackendUnknown, Backup: true},
		}},
	}
	h.status.Balancers = []api.BalancerHealth{{Name: "mycluster-api", Up: 1, Down: 1, Drained: 1}, {Name: "mycluster-ingress-http", New: 1}}
	h.discovered = []api.UnknownMachine{
		{MAC: lab.MAC{0xde, 0xad, 0xbe, 0xef, 0, 2}, IP: netip.MustParseAddr("192.168.131.204"), Network: "cluster", Pool: "guests", Last: at(-time.Minute), Stage: event.StageScript,
			Serial: "J8K2P53", Manufacturer: "Dell Inc.", Product: "<b>R640</b>", UUID: "4c4c4544-004a-3810-804b-b8c04f503533"},
		{MAC: lab.MAC{0xde, 0xad, 0xbe, 0xef, 0, 3}, Last: at(-time.Hour), Stage: event.StageAddress, Reason: "no pool takes this machine"},
	}
	return h
}

// tale is one boot, told.
func tale(host string, start time.Time, outcome string) api.Boot {
	e := func(after time.Duration, k event.Kind, detail string, n int64, dur time.Duration, err string) event.Event {
		return event.Event{Seq: uint64(after), At: start.Add(after), Gen: 7, Kind: k, MAC: macOf(3), Host: host, Detail: detail, Bytes: n, Dur: dur, Err: err}
	}
	const mac = "boot/52-54-00-00-02-03/"
	events := []event.Event{
		e(0, event.DHCPDiscover, "PXEClient, x64 UEFI", 0, 0, ""),
		e(2*time.Millisecond, event.DHCPOffer, "192.168.131.13, ipxe.efi", 0, 0, ""),
		e(4*time.Second, event.DHCPAck, "192.168.131.13", 0, 3*time.Millisecond, ""),
		e(4020*time.Millisecond, event.TFTPServed, mac+"ipxe.efi", 1042432, 210*time.Millisecond, ""),
		e(5100*time.Millisecond, event.ScriptServed, "boot.ipxe", 612, time.Millisecond, ""),
	}
	b := api.Boot{Host: host, MAC: macOf(3), Started: start, Outcome: outcome}
	if outcome == "failed" {
		b.Stage, b.Reason = event.StageFiles, "the kernel does not exist"
		b.Events = append(events, e(5200*time.Millisecond, event.FileMissing, "files/images/rhcos-live-kernel-x86_64", 0, 0, "file not found"))
	} else {
		b.Stage = event.StageInstall
		b.Events = append(events,
			e(7*time.Second, event.FileServed, "files/images/rhcos-live-kernel-x86_64", 12582912, 400*time.Millisecond, ""),
			e(9*time.Second, event.FileServed, "files/images/rhcos-live-rootfs.x86_64.img", 1090519040, 9100*time.Millisecond, ""),
			e(31*time.Second, event.ConfigServed, "master.ign", 1722, 2*time.Millisecond, ""),
			e(6*time.Minute, event.InstallDone, "", 0, 0, ""))
	}
	b.Ended = b.Events[len(b.Events)-1].At
	return b
}

// An adminServer is the admin API of a fakeDaemon, on loopback and on a Unix socket.
type adminServer struct {
	*fakeDaemon
	admin  *httpd.Admin
	logs   *logBuffer
	url    string
	socket string
	stop   context.CancelFunc
	ended  chan error
}

func newAdmin(t testing.TB, h *fakeDaemon, logs *logBuffer, change func(*httpd.AdminDeps)) *httpd.Admin {
	t.Helper()
	reg := prometheus.NewRegistry()
	deps := httpd.AdminDeps{
		Backend: h, Gatherer: reg, Registerer: reg, Now: noon, NewToken: func(context.Context) (string, error) { return "", errors.New("not here") },
		Own: func(host string, _ uint16) bool { return host == "lab.example.com" || host == "192.0.2.80" },
		Log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&deps)
	}
	a, err := httpd.NewAdmin(httpd.AdminConfig{Token: adminToken}, deps)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newAdminServer(t testing.TB) *adminServer {
	t.Helper()
	return newAdminServerOf(t, newFakeDaemon(), nil)
}

// newAdminServerOf opens the admin API of a fakeDaemon, which must not change any more.
func newAdminServerOf(t testing.TB, fakeDaemon *fakeDaemon, change func(*httpd.AdminDeps)) *adminServer {
	t.Helper()
	h := &adminServer{fakeDaemon: fakeDaemon, logs: &logBuffer{}, ended: make(chan error, 1), socket: filepath.Join(t.TempDir(), "admin.sock")}
	h.admin = newAdmin(t, h.fakeDaemon, h.logs, change)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	h.url = "http://" + tcp.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.ended <- errors.Join(h.admin.Serve(ctx, tcp, unix), tcp.Close(), unix.Close()) }() // Serve closes no listener
	t.Cleanup(func() {
		h.stop()
		select {
		case err := <-h.ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve does not end")
		}
	})
	return h
}

// serve asks a handler without a network.
func serve(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String()
}

func (h *fakeDaemon) Resolve(_ context.Context, q api.DNSQuestion) (api.DNSAnswer, error) {
	h.note("resolve %+v", q)
	return api.DNSAnswer{Question: q.Name, Code: "NOERROR", Flags: []string{}, Records: []string{}, Steps: []api.DNSStep{}}, nil
}

func (h *fakeDaemon) FlushDNS(_ context.Context, name string) (api.DNSFlush, error) {
	h.note("flush %s", name)
	return api.DNSFlush{Removed: 3}, nil
}

func (h *fakeDaemon) DNSUpdates(context.Context) []api.DNSUpdate { return []api.DNSUpdate{} }

func (h *fakeDaemon) DeleteDNSUpdate(_ context.Context, name, rtype string) (api.DNSUpdatesDeleted, error) {
	h.note("delete update %s %s", name, rtype)
	return api.DNSUpdatesDeleted{Deleted: 1}, nil
}

func (h *fakeDaemon) FollowDNS(_ context.Context, client string) (<-chan api.DNSQuery, error) {
	if client == "nobody" {
		return nil, unknown(client)
	}
	queries := make(chan api.DNSQuery, 1)
	queries <- api.DNSQuery{Question: "a. A"}
	close(queries)
	return queries, nil
}

// started is when the boot of the fake's console started.
var started = time.Date(2026, 3, 1, 11, 59, 0, 123, time.UTC)

func (h *fakeDaemon) Console(_ context.Context, host string) (<-chan api.ConsoleOutput, error) {
	if host == "metal" {
		return nil, &api.Error{Status: http.StatusConflict, Message: "no console"}
	}
	out := make(chan api.ConsoleOutput, 2)
	out <- api.ConsoleOutput{State: "connected"}
	out <- api.ConsoleOutput{Output: []byte("\x1b[1mlogin:\xff")}
	close(out)
	return out, nil
}

func (h *fakeDaemon) TakeConsole(_ context.Context, host string) error {
	if host != "a" {
		return &api.Error{Status: http.StatusConflict, Message: "no console"}
	}
	return nil
}

func (h *fakeDaemon) TypeConsole(_ context.Context, host string, input []byte) error {
	if string(input) != "root\r" {
		return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("%q on %s", input, host)}
	}
	return nil
}

func (h *fakeDaemon) ConsoleBoots(_ context.Context, host string) []api.ConsoleBoot {
	if host != "a" && host != "master-0" {
		return nil
	}
	return []api.ConsoleBoot{{Started: started, Last: started.Add(time.Second), Bytes: 12}}
}

func (h *fakeDaemon) ConsoleLog(_ context.Context, _ string, at time.Time) ([]byte, error) {
	if !at.Equal(started) {
		return nil, &api.Error{Status: http.StatusNotFound, Message: "no such boot"}
	}
	return []byte("\x1b[1mlogin: <b>"), nil
}
