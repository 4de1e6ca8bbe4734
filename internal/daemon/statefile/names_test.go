package statefile

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// A renaming does random things to the names of a few machines: labs in which they have other names, leave, and come back, also through a
// pool; installs; backups, and restores of them with a state that is there or lost. It knows which machines have a system.
type renaming struct {
	t       *testing.T
	r       *rand.Rand
	store   store.Store
	machine *install.Machine
	lab     *lab.Lab
	names   map[lab.MAC]string
	system  map[lab.MAC]bool
	backups []*backup.Backup
	log     []string
}

// TestNamesOfInstalledMachines: whatever names a machine has had, and whatever was restored, one that has a system is installed again only if
// an admin arms it.
func TestNamesOfInstalledMachines(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := &renaming{t: t, r: rand.New(rand.NewPCG(seed, 1)), store: storetest.Memory(), names: map[lab.MAC]string{}, system: map[lab.MAC]bool{}}
		id, err := identity.Restored(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.store.Commit(t.Context(), store.Put(identity.Key, id)); err != nil {
			t.Fatal(err)
		}
		w.start()
		for range 40 {
			w.step()
			for _, mac := range w.macs() {
				if h := w.host(mac); w.system[mac] && !w.machine.FromDisk(h, mac) {
					t.Fatalf("seed %d: %s, as %s, would be installed again: %+v\nafter\n%s", seed, mac, h.Name, w.machine.Status(h), strings.Join(w.log, "\n"))
				}
			}
		}
	}
}

// macs are the machines that there are.
func (w *renaming) macs() (all []lab.MAC) {
	for i := range 5 {
		all = append(all, lab.MAC{0x52, 0x54, 0, 0, 0, byte(i + 1)})
	}
	return all
}

// host returns a machine as the lab has it, or as one of the pool.
func (w *renaming) host(mac lab.MAC) *lab.Host {
	if h := w.lab.HostByMAC(mac); h != nil {
		return h
	}
	return &lab.Host{Name: mac.Hyphens(), MACs: []lab.MAC{mac}, Profile: w.lab.Networks[0].Pools[0].Profile}
}

func (w *renaming) step() {
	mac := w.macs()[w.r.IntN(5)]
	switch w.r.IntN(7) {
	case 0, 1, 2: // one machine has another name, which another may have had, or none
		delete(w.names, mac)
		if name := fmt.Sprint("h", w.r.IntN(4)); w.r.IntN(4) > 0 {
			maps.DeleteFunc(w.names, func(_ lab.MAC, other string) bool { return other == name })
			w.names[mac] = name
		}
		w.reload()
	case 3: // all names change at once
		clear(w.names)
		for i, name := range w.r.Perm(4) {
			if w.r.IntN(3) > 0 {
				w.names[w.macs()[(i+w.r.IntN(2))%5]] = fmt.Sprint("h", name)
			}
		}
		w.reload()
	case 4:
		w.note("%s is installed as %s", mac, w.host(mac).Name)
		w.must(w.machine.MarkInstalled(w.t.Context(), w.host(mac)))
		w.system[mac] = true
	case 5:
		w.note("backup %d", len(w.backups))
		b := &backup.Backup{}
		b.Lab, b.Created = w.lab.Name, time.Now()
		for key, value := range w.entries() {
			b.Entries = append(b.Entries, backup.Entry{Key: key, Value: value})
		}
		w.backups = append(w.backups, b)
	case 6:
		if len(w.backups) > 0 {
			w.restore(w.r.IntN(len(w.backups)), w.r.IntN(2) == 0)
		}
	}
}

func (w *renaming) restore(i int, lost bool) {
	now := w.entries()
	if lost {
		now = nil
	}
	w.note("backup %d is restored, the state is lost: %v", i, lost)
	r, err := PlanRestore(w.lab, w.backups[i], now, HoldHosts)
	w.must(err)
	w.store = storetest.Memory()
	for _, e := range r.records {
		w.must(w.store.Commit(w.t.Context(), store.Put(e.Key, e.Value)))
	}
	w.start()
	for _, h := range r.Hosts {
		for _, of := range w.lab.Hosts {
			if text := w.machine.Status(of).Text(); of.Name == h.Host && text != h.After {
				w.t.Fatalf("the plan has %s as %s, the daemon as %s, after\n%s", h.Host, h.After, text, strings.Join(w.log, "\n"))
			}
		}
	}
}

// start opens the states, as a daemon does that starts.
func (w *renaming) start() {
	var err error
	w.machine, err = install.Open(w.t.Context(), install.Config{}, install.Deps{Store: w.store, Events: noEvents{}, Now: time.Now})
	w.must(err)
	w.reload()
}

func (w *renaming) reload() {
	once := &lab.Profile{Name: "p", Install: lab.InstallOnce}
	w.lab = &lab.Lab{Name: "t", Networks: []*lab.Network{{Name: "n", Pools: []*lab.Pool{{Name: "any", Profile: once}}}}}
	var names []string
	for _, mac := range slices.SortedFunc(maps.Keys(w.names), lab.MAC.Compare) {
		w.lab.Hosts = append(w.lab.Hosts, &lab.Host{Name: w.names[mac], MACs: []lab.MAC{mac}, Profile: once})
		names = append(names, w.names[mac]+"="+mac.String())
	}
	w.lab.Index()
	w.note("the lab has %s", names)
	_, done, err := w.machine.Follow(w.t.Context(), w.lab.Hosts)
	w.must(err)
	done()
}

func (w *renaming) entries() map[string][]byte {
	all := map[string][]byte{}
	w.must(w.store.Scan(context.Background(), "", func(key string, value []byte) error {
		all[key] = slices.Clone(value)
		return nil
	}))
	return all
}

func (w *renaming) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *renaming) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}
