package logfile

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

type ignored struct{}

func (ignored) Record(event.Event) {}

// rack opens the install states of a store, and returns hosts that were never booted.
func rack(t testing.TB, s *Store, hosts int) (m *install.Machine, hs []*lab.Host) {
	t.Helper()
	m, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: s, Events: ignored{}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	p := &lab.Profile{Name: "rhcos", Install: lab.InstallOnce}
	for i := range hosts {
		hs = append(hs, &lab.Host{Name: fmt.Sprint("worker-", i), Profile: p})
	}
	return m, hs
}

// bootAll lets all hosts request their scripts at once.
func bootAll(t testing.TB, m *install.Machine, hosts []*lab.Host) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(func() {
			if ticket, err := m.Boot(context.WithoutCancel(t.Context()), h, install.Request{}); err != nil || ticket.Token == "" {
				t.Errorf("%s: %+v, %v", h.Name, ticket, err)
			}
		})
	}
	all.Wait()
}

// TestScriptsShareSyncs: a rack that is switched on makes 200 install states durable with two syncs, not with 200.
func TestScriptsShareSyncs(t *testing.T) {
	t.Parallel()
	const hosts = 200
	f, syncs := &faults{}, atomic.Int64{}
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, f.disk)
	m, hs := rack(t, s, hosts)
	f.set(func(f *faults) {
		f.during = func() {
			if syncs.Add(1) > 1 {
				return
			}
			waiting := 0
			for until := time.Now().Add(time.Minute); waiting < hosts-1 && time.Now().Before(until); runtime.Gosched() {
				s.queue.Lock()
				waiting = len(s.queue.waiting)
				s.queue.Unlock()
			}
			if waiting < hosts-1 {
				t.Errorf("during the first sync %d of %d others wait for theirs: they wait for one another", waiting, hosts-1)
			}
		}
	})
	bootAll(t, m, hs)
	f.set(func(f *faults) { f.during = nil })
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d syncs for %d scripts, want 2: that of the first, and one for all that came meanwhile", n, hosts)
	}
	if n := len(content(t, begin(t, crashed(t, s), never, openFile), "install/")); n != hosts {
		t.Errorf("%d of %d states are on disk", n, hosts)
	}
}

// BenchmarkScripts is 200 machines that request their scripts at once, on a disk whose sync takes 20 ms.
func BenchmarkScripts(b *testing.B) {
	f := &faults{during: func() { time.Sleep(20 * time.Millisecond) }}
	s := begin(b, filepath.Join(b.TempDir(), "store.db"), never, f.disk)
	m, hs := rack(b, s, 200)
	for b.Loop() {
		bootAll(b, m, hs)
		b.StopTimer()
		var all sync.WaitGroup
		for _, h := range hs { // the next request begins another boot
			all.Go(func() {
				if err := m.Arm(b.Context(), h); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		b.StartTimer()
	}
}
