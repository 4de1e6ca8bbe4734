package virt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// A fake is a driver and hypervisor in memory. It replaces libvirt.
type fake struct {
	mu         sync.Mutex
	domains    map[string]*fakeDomain // by UUID
	volumes    map[string]bool        // by name
	lengths    map[string]uint64      // of volumes that were uploaded
	capacities map[string]uint64      // of volumes
	uploads    []string
	started    []*libvirtxml.Domain // with StartWith
	startedXML []string             // the same
	calls      []string
	hang       chan struct{} // not nil: Domains blocks until it is closed
	fail       map[string]error
	ignore     bool   // machines ignore Shutdown
	left       int    // calls that change something until nothing answers any more; 0: no limit
	silent     bool   // nothing answers
	memory     uint64 // bytes
	consoles   virt.Consoles
}

type fakeDomain struct {
	name, xml string
	state     virt.State
	autostart bool
	element   string // of the metadata that it runs with
}

var errSilent = errors.New("no answer")

func newFake() *fake {
	return &fake{domains: map[string]*fakeDomain{}, volumes: map[string]bool{}, lengths: map[string]uint64{}, capacities: map[string]uint64{}, fail: map[string]error{}, memory: 64 << 30}
}

func (f *fake) Open(string, func([]string)) virt.Hypervisor { return f }

func (f *fake) Close() {}

func (f *fake) Snapshots(context.Context, string) ([]virt.Snapshot, error) { return nil, nil }

func (f *fake) CreateSnapshot(context.Context, string, string) error { return errSilent }

func (f *fake) Revert(context.Context, string, string) error { return errSilent }

func (f *fake) DeleteSnapshot(context.Context, string, string) error { return errSilent }

func (f *fake) Consoles(context.Context, virt.ConsoleSink) (virt.Consoles, error) {
	if f.consoles == nil {
		return nil, errors.New("this fake has no consoles")
	}
	return f.consoles, nil
}

func (f *fake) Node(context.Context) (virt.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return virt.Node{CPUs: 8, Memory: f.memory}, f.fail["dial"]
}

func (f *fake) Capabilities(context.Context, string, string, string) (string, error) {
	return "", errSilent
}

func (f *fake) Interfaces(context.Context) ([]string, error) { return nil, errSilent }

func (f *fake) Networks(context.Context) ([]virt.Network, error) { return nil, nil }

func (f *fake) DefineNetwork(context.Context, string) error { return errSilent }

func (f *fake) DeleteNetwork(context.Context, string) error { return errSilent }

func (f *fake) Pools(context.Context) ([]virt.Pool, error) {
	return []virt.Pool{{Name: "default", Active: true, Capacity: 100 << 30, Free: 40 << 30}}, nil
}

func (f *fake) Find(ctx context.Context, uuid, name string) ([]virt.Domain, error) {
	all, err := f.Domains(ctx)
	return slices.DeleteFunc(all, func(d virt.Domain) bool { return d.UUID != uuid && d.Name != name }), err
}

func (f *fake) Domains(ctx context.Context) ([]virt.Domain, error) {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, virt.Unreachable(fmt.Errorf("no answer: %w", ctx.Err()))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []virt.Domain
	for uuid, d := range f.domains {
		var x libvirtxml.Domain
		if err := x.Unmarshal(d.xml); err != nil {
			return nil, err
		}
		element := ""
		if x.Metadata != nil {
			element = x.Metadata.XML
		}
		dom := virt.Domain{Name: d.name, UUID: uuid, State: d.state, Metadata: element, Autostart: d.autostart}
		if d.state == virt.StateRunning {
			dom.Run = 1
			if d.element != "" && d.element != element {
				dom.Metadata, dom.Next = d.element, element
			}
		}
		if x.Memory != nil {
			dom.Memory = uint64(x.Memory.Value) << 10
		}
		for _, nic := range interfaces(&x) {
			dom.MACs = append(dom.MACs, nic.MAC.Address)
		}
		all = append(all, dom)
	}
	if err := f.fail["dial"]; err != nil {
		return nil, err
	}
	return all, f.fail["list"]
}

// change records a call that changes something, and runs it unless f.fail has an error for it.
func (f *fake) change(call, what string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.Contains(what, ".bootlab") { // the marks of volumes: their effect is tested, not each call
		f.calls = append(f.calls, call+" "+what)
	}
	if f.silent {
		return errSilent
	}
	if err := f.fail[call]; err != nil {
		return err
	}
	err := do()
	if f.left--; f.left == 0 {
		f.silent = true
	}
	return err
}

func (f *fake) XML(_ context.Context, uuid string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.domains[uuid].xml, nil
}

func (f *fake) Define(_ context.Context, xml string) error {
	var x libvirtxml.Domain
	if err := x.Unmarshal(xml); err != nil {
		return err
	}
	return f.change("define", x.Name, func() error {
		d := f.domains[x.UUID]
		if d == nil {
			d = &fakeDomain{name: x.Name, state: virt.StateOff}
			f.domains[x.UUID] = d
		} else if d.state == virt.StateRunning && d.element == "" {
			var runs libvirtxml.Domain
			if err := runs.Unmarshal(d.xml); err != nil {
				return err
			}
			d.element = runs.Metadata.XML
		}
		d.xml = xml
		return nil
	})
}

func (f *fake) set(call, uuid string, s virt.State) error {
	return f.change(call, f.name(uuid), func() error {
		f.domains[uuid].state, f.domains[uuid].element = s, ""
		return nil
	})
}

func (f *fake) name(uuid string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.domains[uuid].name
}

func (f *fake) SetAutostart(_ context.Context, uuid string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.domains[uuid]; d != nil {
		d.autostart = on
	}
	return nil
}

func (f *fake) Start(_ context.Context, uuid string) error {
	return f.set("start", uuid, virt.StateRunning)
}
func (f *fake) StartWith(_ context.Context, xml string) error {
	var x libvirtxml.Domain
	if err := x.Unmarshal(xml); err != nil {
		return err
	}
	f.started, f.startedXML = append(f.started, &x), append(f.startedXML, xml)
	return f.set("start-with", x.UUID, virt.StateRunning)
}
func (f *fake) SetBootOrder(_ context.Context, uuid string, order map[string]uint) error {
	return f.change("boot-order", fmt.Sprint(f.name(uuid), " ", order), func() error { return nil })
}
func (f *fake) Destroy(_ context.Context, uuid string) error {
	return f.set("destroy", uuid, virt.StateOff)
}
func (f *fake) Shutdown(_ context.Context, uuid string) error {
	if f.ignore {
		return f.set("shutdown", uuid, virt.StateRunning)
	}
	return f.set("shutdown", uuid, virt.StateOff)
}

func (f *fake) Undefine(_ context.Context, uuid string) error {
	return f.change("undefine", f.name(uuid), func() error {
		delete(f.domains, uuid)
		return nil
	})
}

func (f *fake) Volumes(_ context.Context, ids []virt.VolumeID) ([]virt.Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	volumes := make([]virt.Volume, len(ids))
	for i, id := range ids {
		volumes[i] = virt.Volume{VolumeID: id}
		if id.Pool != "default" {
			volumes[i].Err = "no storage pool " + id.Pool
		} else if f.volumes[id.Name] {
			volumes[i].Path, volumes[i].Format, volumes[i].Bytes, volumes[i].Capacity = "/pool/"+id.Name, "qcow2", f.lengths[id.Name], f.capacities[id.Name]
		}
	}
	return volumes, nil
}

func (f *fake) VolumeAt(ctx context.Context, path string) (virt.Volume, error) {
	name, ok := strings.CutPrefix(path, "/pool/")
	if !ok {
		return virt.Volume{}, nil
	}
	volumes, err := f.Volumes(ctx, []virt.VolumeID{{Pool: "default", Name: name}})
	return volumes[0], err
}

func (f *fake) Grow(_ context.Context, _, device string, id virt.VolumeID, bytes uint64) error {
	return f.change("grow", id.Name+" "+device, func() error {
		f.capacities[id.Name] = bytes
		return nil
	})
}

func (f *fake) CreateVolume(_ context.Context, _, xml string) (string, error) {
	var v libvirtxml.StorageVolume
	if err := v.Unmarshal(xml); err != nil {
		return "", err
	}
	return "/pool/" + v.Name, f.change("create-volume", v.Name, func() error {
		f.volumes[v.Name] = true
		if v.Capacity != nil {
			f.capacities[v.Name] = v.Capacity.Value
		}
		return nil
	})
}

func (f *fake) UploadVolume(_ context.Context, pool, xml string, content io.Reader, n uint64) (string, error) {
	b, err := io.ReadAll(content)
	if err != nil {
		return "", err
	}
	var v libvirtxml.StorageVolume
	if err := v.Unmarshal(xml); err != nil {
		return "", err
	}
	return "/pool/" + v.Name, f.change("upload", v.Name, func() error {
		f.volumes[v.Name], f.lengths[v.Name] = true, uint64(len(b))
		f.uploads = append(f.uploads, string(b))
		return nil
	})
}

func (f *fake) DeleteVolume(_ context.Context, _, name string) error {
	return f.change("delete-volume", name, func() error {
		delete(f.volumes, name)
		return nil
	})
}

// takeCalls returns the calls that changed something since the last time.
func (f *fake) takeCalls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// A memory is a virt.Store that outlives a Server.
type memory[T comparable] struct {
	mu     sync.Mutex
	byHost map[string]T
}

func (m *memory[T]) Load(context.Context) (map[string]T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.byHost), nil
}

func (m *memory[T]) Put(_ context.Context, host string, v T) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byHost[host] = v
	if v == *new(T) {
		delete(m.byHost, host)
	}
	return nil
}

// A recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []event.Event
}

func (r *recorder) Record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns the kinds recorded since the last time.
func (r *recorder) take() []event.Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []event.Kind
	for _, e := range r.events {
		kinds = append(kinds, e.Kind)
	}
	r.events = nil
	return kinds
}

// A testServer is a Server whose lab a test can replace.
type testServer struct {
	*virt.Server
	events   *recorder
	registry *prometheus.Registry
	table    atomic.Pointer[virt.Table]
	files    virt.Files // of each lab
}

func (b *testServer) use(t *testing.T, l *lab.Lab) {
	t.Helper()
	table, err := virt.Compile(l)
	check(t, err)
	table.Files = b.files
	b.table.Store(table)
}

func newTestServer(t *testing.T, l *lab.Lab, d virt.Driver, cfg virt.Config) *testServer {
	t.Helper()
	return newTestServerWith(t, l, cfg, virt.Deps{Driver: d})
}

func newTestServerWith(t *testing.T, l *lab.Lab, cfg virt.Config, deps virt.Deps) *testServer {
	t.Helper()
	return newTestServerOf(t, nil, l, cfg, deps)
}

// newTestServerOf returns a server of machines that are made from files.
func newTestServerOf(t *testing.T, files virt.Files, l *lab.Lab, cfg virt.Config, deps virt.Deps) *testServer {
	t.Helper()
	b := &testServer{events: &recorder{}, registry: prometheus.NewRegistry(), files: files}
	if cfg.ListWait == 0 {
		cfg.ListWait = time.Minute // a slow machine is not a silent hypervisor
	}
	b.use(t, l)
	deps.Table, deps.Events, deps.Log = b.table.Load, b.events, slog.New(slog.NewTextHandler(io.Discard, nil))
	deps.Registerer, deps.Now = b.registry, time.Now
	if deps.Driver == nil {
		deps.Driver = &virt.Processes{Program: "/proc/self/exe", Log: deps.Log}
	}
	s, err := virt.New(cfg, deps)
	check(t, err)
	b.Server = s
	return b
}

// wantHypervisors checks the metric of hypervisors: how many are up, down and unknown.
func (b *testServer) wantHypervisors(t *testing.T, up, down, unknown float64) {
	t.Helper()
	families, err := b.registry.Gather()
	check(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == virt.MetricHypervisors {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"up": up, "down": down, "unknown": unknown}, got); diff != "" {
		t.Errorf("hypervisors (-want +got)\n%s", diff)
	}
}

func (b *testServer) wantEvents(t *testing.T, want ...event.Kind) {
	t.Helper()
	if diff := cmp.Diff(want, b.events.take(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

func wantCalls(t *testing.T, f *fake, want ...string) {
	t.Helper()
	got := f.takeCalls()
	if !slices.Equal(got, want) {
		t.Errorf("calls (-want +got)\n%s", cmp.Diff(want, got))
	}
}

func interfaces(d *libvirtxml.Domain) []libvirtxml.DomainInterface {
	if d.Devices == nil {
		return nil
	}
	return d.Devices.Interfaces
}
