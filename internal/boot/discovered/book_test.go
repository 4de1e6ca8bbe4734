package discovered

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func mac(n byte) lab.MAC { return lab.MAC{0x52, 0x54, 0, 0, 0, n} }

func open(t *testing.T, s store.Store, now *time.Time) *Book {
	t.Helper()
	b, err := Open(t.Context(), Config{Machines: 3}, Deps{Store: s, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBook: a change is reported once and survives a kill; the machine that was silent longest is evicted.
func TestBook(t *testing.T) {
	t.Parallel()
	s, now, addr := storetest.Memory(), time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), netip.MustParseAddr("10.0.0.9")
	b := open(t, s, &now)
	report := func(n byte, f Facts, want bool) {
		t.Helper()
		now = now.Add(time.Second)
		news, err := b.Report(t.Context(), mac(n), addr, f)
		if err != nil || news != want {
			t.Fatalf("report of %d: news %v, %v; want %v", n, news, err, want)
		}
	}
	report(1, Facts{Serial: "a"}, true)
	report(1, Facts{Serial: "a"}, false)
	report(1, Facts{Serial: "b"}, true)
	report(2, Facts{}, true)
	report(3, Facts{}, true)
	report(1, Facts{Serial: "b"}, false)
	now = now.Add(2 * time.Minute)
	report(1, Facts{Serial: "b"}, false)
	report(4, Facts{}, true) // evicts 2
	b = open(t, s, &now)
	all := b.All()
	if len(all) != 3 || all[0].MAC != mac(4) || all[1].MAC != mac(1) || all[2].MAC != mac(3) {
		t.Fatalf("after a restart: %+v", all)
	}
	one, ok := b.Get(mac(1))
	if !ok || one.Facts.Serial != "b" || !one.First.Before(one.Last) || now.Sub(one.Last) > time.Minute {
		t.Errorf("machine 1 is %+v, %v", one, ok)
	}
	if _, ok := b.Get(mac(2)); ok {
		t.Error("machine 2 is remembered")
	}
}

// TestBookKeepsNothingUnwritten: what could not be written down is not known, and what was known stays.
func TestBookKeepsNothingUnwritten(t *testing.T) {
	t.Parallel()
	s, now := storetest.Memory(), time.Now()
	b := open(t, s, &now)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Report(t.Context(), mac(1), netip.Addr{}, Facts{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if all := b.All(); len(all) > 0 {
		t.Errorf("known: %+v", all)
	}
}

// A hungStore keeps a commit waiting.
type hungStore struct {
	*storetest.Mem
	waits, until chan struct{}
}

func (s *hungStore) Commit(ctx context.Context, txn store.Txn) error {
	s.waits <- struct{}{}
	<-s.until
	return s.Mem.Commit(ctx, txn)
}

// TestBookOnAHungDisk: who reads the machines does not wait for a report that is being stored, and does not see it.
func TestBookOnAHungDisk(t *testing.T) {
	t.Parallel()
	s, now := &hungStore{storetest.Memory(), make(chan struct{}), make(chan struct{})}, time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	b := open(t, s, &now)
	reported := make(chan error, 1)
	go func() {
		_, err := b.Report(t.Context(), mac(1), netip.MustParseAddr("10.0.0.9"), Facts{})
		reported <- err
	}()
	<-s.waits
	read := make(chan int, 1)
	go func() { read <- len(b.All()) }()
	select {
	case n := <-read:
		if n != 0 {
			t.Errorf("%d machines, before the report is stored", n)
		}
	case <-time.After(time.Minute):
		t.Error("who reads the machines waits for the disk")
	}
	close(s.until)
	if err := <-reported; err != nil || len(b.All()) != 1 {
		t.Errorf("after that: %v, %+v", err, b.All())
	}
}
