package dhcpd

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// A badDisk is a store whose syncs hang or fail.
type badDisk struct {
	*memStore
	mu    sync.Mutex
	block chan struct{} // a commit waits until it is closed; nil: it does not
	err   error
	waits atomic.Int64 // commits that wait now
}

func (d *badDisk) set(block chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.block, d.err = block, err
}

func (d *badDisk) CommitAll(ctx context.Context, txns []store.Txn) []error {
	d.mu.Lock()
	block, err := d.block, d.err
	d.mu.Unlock()
	d.waits.Add(1)
	defer d.waits.Add(-1)
	if block != nil {
		<-block
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(txns))
	}
	return d.memStore.CommitAll(ctx, txns)
}

// A diskTest is a live server on a badDisk, with a clock that can be advanced.
type diskTest struct {
	*Server
	disk  *badDisk
	clock atomic.Int64 // how far it was advanced
	log   bytes.Buffer // to be read after stop
	stop  func()
}

func startOnBadDisk(t *testing.T) *diskTest {
	t.Helper()
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	b := newBench(t)
	table := Compile(onBridge(b.lab, seg.Bridge))
	d := &diskTest{disk: &badDisk{memStore: newMemStore()}}
	now := func() time.Time { return time.Now().Add(time.Duration(d.clock.Load())) }
	d.Server = newServerAt(t, func() *Table { return table }, d.disk, &events{}, slog.New(slog.NewTextHandler(&d.log, nil)), now)
	joinHere(t, seg)
	d.stop = serve(t, d.Server)
	t.Cleanup(func() { // a blocked commit would keep Serve from ending
		d.disk.mu.Lock()
		block := d.disk.block
		d.disk.block = nil
		d.disk.mu.Unlock()
		if block != nil {
			close(block)
		}
		d.stop()
	})
	return d
}

// lease is DISCOVER and REQUEST of a machine, with real packets. It returns the lease time, or an error if there is no answer.
func (d *diskTest) lease(t *testing.T, m string, timeout time.Duration, tries int) (time.Duration, error) {
	t.Helper()
	hw := mac(t, m)
	c, err := nclient4.New("vcl", nclient4.WithTimeout(timeout), nclient4.WithRetry(tries), nclient4.WithHWAddr(hw[:]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	l, err := c.Request(t.Context(), dhcpv4.WithBroadcast(true))
	if err != nil {
		return 0, err
	}
	return l.ACK.IPAddressLeaseTime(0), nil
}

const long, short = 5 * time.Second, 300 * time.Millisecond

// answersReservation and answersRenewal end the test at once where a known machine waits for the disk: every further question would take
// half a minute.
func (d *diskTest) answersReservation(t *testing.T) {
	t.Helper()
	if got, err := d.lease(t, master0, long, 6); err != nil || got != 12*time.Hour {
		t.Fatalf("a reservation on a bad disk: %v, %v; want 12h", got, err)
	}
}

func (d *diskTest) answersRenewal(t *testing.T) {
	t.Helper()
	if got, err := d.lease(t, pooled, long, 6); err != nil || got > 20*time.Minute || got < 15*time.Minute {
		t.Fatalf("a renewal on a bad disk: %v, %v; want the 20 minutes that are on disk", got, err)
	}
}

// TestKnownHostsAreAnsweredWhileTheDiskHangs: a sync does not return. Reservations and renewals are answered meanwhile, the
// latter with the time that is on disk. A new machine waits.
func TestKnownHostsAreAnsweredWhileTheDiskHangs(t *testing.T) {
	d := startOnBadDisk(t)
	if got, err := d.lease(t, pooled, long, 6); err != nil || got != time.Hour {
		t.Fatalf("lease of %v, %v", got, err)
	}
	d.clock.Add(int64(40 * time.Minute)) // past the quarter in which no renewal is stored
	hang := make(chan struct{})
	d.disk.set(hang, nil)
	d.answersReservation(t)
	netns.WaitFor(t, "the commit that hangs", func() bool { return d.disk.waits.Load() == 1 })
	d.answersRenewal(t)
	if got, err := d.lease(t, "02:00:00:00:00:10", short, 3); err == nil {
		t.Errorf("a new machine has a lease of %v, which is not on disk", got)
	}
	if d.disk.waits.Load() != 1 {
		t.Error("the disk did not hang: the test proves nothing")
	}
	d.disk.set(nil, nil)
	close(hang)
	netns.WaitFor(t, "the renewal on disk", func() bool {
		l, _ := d.deps.Book.ByMAC(mac(t, pooled))
		return l.Expiry.Sub(d.deps.Now()) > 55*time.Minute
	})
	if _, err := d.lease(t, "02:00:00:00:00:10", long, 6); err != nil {
		t.Errorf("a new machine, on a disk that works: %v", err)
	}
}

// TestKnownHostsAreAnsweredOnABrokenDisk: full, read-only, broken. New machines get no answer, and the log has one line.
func TestKnownHostsAreAnsweredOnABrokenDisk(t *testing.T) {
	for _, why := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		t.Run(why.Error(), func(t *testing.T) {
			d := startOnBadDisk(t)
			if _, err := d.lease(t, pooled, long, 6); err != nil {
				t.Fatal(err)
			}
			d.clock.Add(int64(40 * time.Minute))
			d.disk.set(nil, why)
			for range 3 {
				d.answersReservation(t)
				d.answersRenewal(t)
			}
			if got, err := d.lease(t, "02:00:00:00:00:10", short, 3); err == nil {
				t.Errorf("a new machine has a lease of %v, which is not on disk", got)
			}
			d.disk.set(nil, nil)
			if _, err := d.lease(t, "02:00:00:00:00:10", long, 6); err != nil {
				t.Errorf("a new machine, on a disk that works again: %v", err)
			}
			d.stop()
			log := d.log.String()
			if n := strings.Count(log, "level=ERROR"); n != 1 || !strings.Contains(log, why.Error()) || !strings.Contains(log, "leases are stored again") {
				t.Errorf("%d errors, want one that names the reason, and the end:\n%s", n, log)
			}
		})
	}
}

// TestFlappingStoreIsLoggedOnceAMinute: a disk that is almost full fails and works in turn, every second. The log has an error and its end
// once a minute, counts what was not stored in between, and ends with the truth.
func TestFlappingStoreIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log, e, now := slog.New(slog.NewTextHandler(&text, nil)), storeErrors{}, time.Unix(1_000_000_000, 0)
	for i := range 600 {
		stored, failed, why := 3, 0, error(nil)
		if i%2 == 0 {
			stored, failed, why = 1, 2, syscall.ENOSPC
		}
		e.report(log, stored, failed, why, now)
		now = now.Add(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 20 {
		t.Fatalf("%d lines in 10 minutes, want 20:\n%s", len(lines), text.String())
	}
	for i, want := range []string{`msg="leases are not stored`, `msg="leases are stored again" not_stored=2`, `changes=60 err="no space left on device"`, `msg="leases are stored again" not_stored=60`} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s, want %s", i, lines[i], want)
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "stored again") {
		t.Errorf("the disk works, and the log ends with %s", last)
	}
}
