package virt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/virt"
)

// fakes is a driver of several hypervisors, by URI.
type fakes map[string]*fake

func (f fakes) Open(uri string, _ func([]string)) virt.Hypervisor { return f[uri] }

// openLab returns a lab of three hypervisors, kvm1 to kvm3, that may all have any of its machines: names are host=role.
func openLab(hosts ...string) *lab.Lab {
	l := oneHost()
	proto := l.Hosts[0]
	first := l.Hypervisors[0]
	l.Hosts, l.Hypervisors = nil, nil
	for i := range 3 {
		hv := *first
		hv.Name = fmt.Sprint("kvm", i+1)
		hv.URI = "fake://" + hv.Name
		l.Hypervisors = append(l.Hypervisors, &hv)
	}
	for i, name := range hosts {
		h, vm := *proto, *proto.VM
		h.Name, h.Role, _ = strings.Cut(name, "=")
		h.MACs = []lab.MAC{{0x52, 0x54, 0, 7, byte(i >> 8), byte(i)}}
		vm.Hypervisor, vm.Candidates, h.VM = nil, l.Hypervisors, &vm
		l.Hosts = append(l.Hosts, &h)
	}
	return l
}

func threeFakes() fakes {
	return fakes{"fake://kvm1": newFake(), "fake://kvm2": newFake(), "fake://kvm3": newFake()}
}

// where returns the hypervisor of each machine that the list shows.
func where(t *testing.T, b *testServer) map[string]string {
	t.Helper()
	at := map[string]string{}
	for _, st := range b.List(t.Context()) {
		if st.Orphan || st.Err != "" {
			t.Errorf("list: %+v", st)
		}
		at[st.Host] = st.Hypervisor
	}
	return at
}

func wantWhere(t *testing.T, b *testServer, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, where(t, b)); diff != "" {
		t.Errorf("hypervisors (-want +got)\n%s", diff)
	}
}

// TestPlacement places machines by role and memory, and keeps them where they are: over restarts, over the loss of the state, and after
// a delete that keeps their disks.
func TestPlacement(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := threeFakes()
	f["fake://kvm1"].memory = 10 << 30
	f["fake://kvm2"].memory = 20 << 30
	f["fake://kvm3"].memory = 14 << 30
	l := openLab("c1=control-plane", "c2=control-plane", "c3=control-plane", "w1=worker", "x1", "x2", "big")
	l.Hosts[6].VM.Memory = 16 * gib
	kept := &memory[virt.Placement]{byHost: map[string]virt.Placement{}}
	start := func(kept *memory[virt.Placement]) *testServer {
		return newTestServerWith(t, l, virt.Config{}, virt.Deps{Driver: f, Placements: kept})
	}
	b := start(kept)
	plan, err := b.Plan(ctx, []string{"c1", "c2"})
	check(t, err)
	if len(plan) != 2 || plan[0].Condition != virt.ConditionMissing || !strings.HasSuffix(plan[0].Details[0], "now that would be kvm2") ||
		!strings.HasSuffix(plan[1].Details[0], "now that would be kvm3") {
		t.Errorf("plan of machines without a hypervisor: %+v", plan)
	}
	wantErr(t, b.Start(ctx, "c1"), "create it first")
	wantErr(t, b.Stop(ctx, "c1", virt.StopForce, 0), "create it first")
	if len(kept.byHost) != 0 {
		t.Errorf("plan, start and stop have placed %v", kept.byHost)
	}
	for _, h := range []string{"c1", "c2", "c3", "w1", "x1"} {
		check(t, b.Create(ctx, h))
	}
	// The most memory first, never two of a role where it can be avoided; then only memory counts: 16, 10 and 6 GiB are left.
	want := map[string]string{"c1": "kvm2", "c2": "kvm3", "c3": "kvm1", "w1": "kvm2", "x1": "kvm2", "x2": "", "big": ""}
	wantWhere(t, b, want)
	wantErr(t, b.Create(ctx, "big"), "no hypervisor has room for its 16384 MiB", "kvm1 has 6144 MiB left of 10240 MiB")
	check(t, b.Create(ctx, "c1"))

	wantWhere(t, start(kept), want)
	lost := &memory[virt.Placement]{byHost: map[string]virt.Placement{}}
	b = start(lost)
	check(t, b.Start(ctx, "c2")) // it is found, nothing was asked before
	wantWhere(t, b, want)
	plan, err = b.Plan(ctx, nil)
	check(t, err)
	for _, p := range plan {
		if want[p.Host] != p.Hypervisor || want[p.Host] != "" && p.Condition != virt.ConditionOK {
			t.Errorf("plan after the loss of the state: %+v", p)
		}
	}

	check(t, b.Delete(ctx, "c3", virt.KeepDisks))
	wantWhere(t, start(lost), want) // where its disks are
	check(t, b.Delete(ctx, "c3", virt.DeleteDisks))
	check(t, b.Delete(ctx, "w1", virt.DeleteDisks))
	want["c3"], want["w1"] = "", ""
	wantWhere(t, start(lost), want)
	wantErr(t, b.Delete(ctx, "c3", virt.DeleteDisks), "nothing to delete")
	if got := slices.Sorted(maps.Keys(lost.byHost)); !slices.Equal(got, []string{"c1", "c2", "x1"}) {
		t.Errorf("placements of %v are stored", got)
	}

	// What others run there takes memory too.
	f["fake://kvm2"].domains["other"] = &fakeDomain{name: "other", state: virt.StateRunning, xml: `<domain><name>other</name><memory unit="KiB">16777216</memory></domain>`}
	check(t, start(lost).Create(ctx, "x2"))
	want["x2"] = "kvm1"
	wantWhere(t, start(lost), want)
}

// TestPlacementWithASilentHypervisor: one that has never answered may have the machine; one that has answered has it or not.
func TestPlacementWithASilentHypervisor(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := threeFakes()
	l := openLab("a", "b")
	b := newTestServer(t, l, f, virt.Config{})
	down := virt.Unreachable(errors.New("no route to host"))
	f["fake://kvm1"].fail["dial"] = down
	wantErr(t, b.Create(ctx, "a"), "kvm1 has not answered since the daemon started", "hypervisor: [kvm2, kvm3]")
	if st := b.List(ctx); st[0].State != virt.StateUnknown || st[0].Err == "" {
		t.Errorf("list: %+v", st[0])
	}
	delete(f["fake://kvm1"].fail, "dial")
	placements, answered := &memory[virt.Placement]{byHost: map[string]virt.Placement{}}, &memory[virt.Answered]{byHost: map[string]virt.Answered{}}
	start := func() *testServer {
		return newTestServerWith(t, l, virt.Config{}, virt.Deps{Driver: f, Placements: placements, Answered: answered})
	}
	b = start()
	check(t, b.Create(ctx, "a"))
	wantWhere(t, b, map[string]string{"a": "kvm1", "b": ""})
	f["fake://kvm1"].fail["dial"] = down
	check(t, b.Create(ctx, "b"))
	if got := b.List(ctx)[1]; got.Hypervisor != "kvm2" {
		t.Errorf("b is %+v, want it on kvm2", got)
	}

	// What it has is known from before the restart, unless the state was lost.
	check(t, b.Delete(ctx, "b", virt.DeleteDisks))
	b = start()
	plan, err := b.Plan(ctx, []string{"b"})
	check(t, err)
	if len(plan) != 1 || plan[0].Condition != virt.ConditionMissing {
		t.Errorf("plan after a restart: %+v", plan)
	}
	check(t, b.Create(ctx, "b"))
	if got := b.List(ctx)[1]; got.Hypervisor != "kvm2" {
		t.Errorf("after a restart b is %+v, want it on kvm2", got)
	}
	check(t, b.Delete(ctx, "b", virt.DeleteDisks))
	clear(answered.byHost)
	wantErr(t, start().Create(ctx, "b"), "kvm1 has not answered since the daemon started")
	answered.byHost["kvm1"] = virt.Answered{URI: "fake://another"}
	wantErr(t, start().Create(ctx, "b"), "kvm1 has not answered since the daemon started")
}

// TestPlacementOutsideOfItsCandidates changes the list of hypervisors while the machine is on one that is not in it any more.
func TestPlacementOutsideOfItsCandidates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := threeFakes()
	l := openLab("a")
	b := newTestServer(t, l, f, virt.Config{})
	check(t, b.Create(ctx, "a"))
	wantWhere(t, b, map[string]string{"a": "kvm1"})
	others := openLab("a")
	others.Hosts[0].VM.Candidates = others.Hypervisors[1:]
	b.use(t, others)
	wantErr(t, b.Create(ctx, "a"), "on hypervisor kvm1, and two machines must not have one MAC", "bootlab vm delete a")
	st := b.List(ctx)
	if len(st) != 2 || st[0].Hypervisor == st[1].Hypervisor {
		t.Errorf("list: %+v", st)
	}
	check(t, b.Stop(ctx, "a", virt.StopForce, 0))
	check(t, b.Delete(ctx, "a", virt.DeleteDisks))
	check(t, b.Create(ctx, "a"))
	wantWhere(t, b, map[string]string{"a": "kvm2"})

	fixed := openLab("a") // and the lab file may name what was chosen
	fixed.Hosts[0].VM.Hypervisor, fixed.Hosts[0].VM.Candidates = fixed.Hypervisors[1], nil
	b.use(t, fixed)
	wantWhere(t, b, map[string]string{"a": "kvm2"})
	check(t, b.Create(ctx, "a"))
	wantCalls(t, f["fake://kvm2"], "create-volume a-vda.qcow2", "define a")
}

// TestPlacementAtTheSameTime creates many machines at once: none is forgotten where the next is placed.
func TestPlacementAtTheSameTime(t *testing.T) {
	t.Parallel()
	var hosts []string
	for i := range 60 {
		hosts = append(hosts, fmt.Sprintf("w%d=worker", i))
	}
	l := openLab(hosts...)
	f := threeFakes()
	for _, one := range f {
		one.memory = 4 * 20 << 30
	}
	b := newTestServer(t, l, f, virt.Config{})
	var creates sync.WaitGroup
	for _, h := range l.Hosts {
		creates.Go(func() {
			if err := b.Create(t.Context(), h.Name); err != nil {
				t.Error(err)
			}
		})
	}
	creates.Wait()
	on := map[string]int{}
	for _, hv := range where(t, b) {
		on[hv]++
	}
	if diff := cmp.Diff(map[string]int{"kvm1": 20, "kvm2": 20, "kvm3": 20}, on); diff != "" {
		t.Errorf("machines by hypervisor (-want +got)\n%s", diff)
	}
	for _, c := range b.Capacities(t.Context()) {
		if c.Err != nil || c.Machines != 20 || c.Allocated != 80<<30 || c.Running != 0 || c.Node.CPUs != 8 || len(c.Pools) != 1 {
			t.Errorf("capacity %+v", c)
		}
	}
}

// TestPlacementOfASharedVolume: two machines that may be on one hypervisor must not name one volume.
func TestPlacementOfASharedVolume(t *testing.T) {
	t.Parallel()
	l := openLab("a", "b", "c")
	for _, h := range l.Hosts {
		h.VM.Disks = []lab.Disk{{Volume: "data.qcow2"}}
	}
	l.Hosts[0].VM.Candidates = l.Hypervisors[:1]
	l.Hosts[1].VM.Candidates = l.Hypervisors[1:2]
	l.Hosts[2].VM.Candidates = l.Hypervisors[1:]
	_, err := virt.Compile(l)
	wantErr(t, err, "hosts.c.vm.disks: volume data.qcow2 in pool default is a disk of host b")
	if strings.Contains(err.Error(), "host a") {
		t.Errorf("a is on no hypervisor of the others: %v", err)
	}
}

// A slowStore is a store on a disk that hangs: it stores later, or its Put waits.
type slowStore struct {
	memory[virt.Placement]
	hangs   bool
	waits   chan chan struct{} // if not nil, a Put sends what it waits for
	pending map[string]virt.Placement
}

func (s *slowStore) Put(ctx context.Context, host string, p virt.Placement) error {
	if s.waits != nil {
		until := make(chan struct{})
		s.waits <- until
		<-until
	}
	if s.hangs {
		s.pending[host] = p
		return store.ErrHung
	}
	return s.memory.Put(ctx, host, p)
}

// TestPlacementsOnASlowDisk: what was seen of machines holds before it is stored, nobody who asks waits for that, and a choice that cannot
// be stored is not made.
func TestPlacementsOnASlowDisk(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kept := &slowStore{memory: memory[virt.Placement]{byHost: map[string]virt.Placement{}}, pending: map[string]virt.Placement{}}
	b := newTestServerWith(t, openLab("a", "b"), virt.Config{ListWait: time.Second}, virt.Deps{Driver: threeFakes(), Placements: kept})
	check(t, b.Create(ctx, "a"))
	kept.hangs = true
	check(t, b.Start(ctx, "a"))
	wantErr(t, b.Create(ctx, "b"), "the disk does not respond")
	if p := kept.pending; p["a"].State != virt.StateRunning || p["b"] != (virt.Placement{}) {
		t.Errorf("to be stored later: %+v; want a running, and nothing of b, which was not created", p)
	}
	kept.hangs, kept.waits = false, make(chan chan struct{})
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop(ctx, "a", virt.StopForce, 0) }()
	until := <-kept.waits
	listed := make(chan []virt.Status, 1)
	go func() { listed <- b.List(ctx) }()
	select {
	case all := <-listed:
		if len(all) != 2 || all[0].State != virt.StateOff {
			t.Errorf("list: %+v", all)
		}
	case <-time.After(time.Minute):
		t.Error("who lists machines waits for the disk")
	}
	close(until)
	check(t, <-stopped)
}
