package leases

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// leaserFile, set to the path of a store, makes the test binary a server without a network that is killed by TestKill.
const leaserFile = "BOOTLAB_TEST_LEASER"

func TestMain(m *testing.M) {
	if path := os.Getenv(leaserFile); path != "" {
		if err := leaseForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

func killPool() *Pool { return NewPool(ip("10.0.0.0"), ip("10.0.63.255"), nil) }

// openFile opens a state file as the daemon does.
func openFile(path string, pools ...*Pool) (*logfile.Store, *Book, error) {
	s, _, err := logfile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	b, err := Open(context.Background(), s, time.Now, pools...)
	return s, b, err
}

// leaseForever gives leases to ever new machines and prints each that was acknowledged.
func leaseForever(path string) error {
	p := killPool()
	_, b, err := openFile(path, p)
	if err != nil {
		return err
	}
	for batch := range 1000 {
		var changes []*Change
		for range 20 {
			n := os.Getpid()<<10 + batch*20 + len(changes)
			a, _, err := b.Offer(Request{MAC: mac(n), Subnet: subnet, Pool: p})
			if err != nil {
				break
			}
			changes = append(changes, &Change{Subnet: subnet, Lease: Lease{
				Addr: a, MAC: mac(n), State: Active, Start: time.Now(), Expiry: time.Now().Add(time.Hour), Hostname: fmt.Sprint("node-", n),
			}})
		}
		b.Commit(context.Background(), changes)
		for _, c := range changes {
			if c.Err != nil {
				return c.Err
			}
			os.Stdout.WriteString(c.Addr.String() + " " + c.MAC.String() + "\n") // one write(2): what is read whole was said
		}
	}
	time.Sleep(time.Hour) // the pool is full; killed before
	return nil
}

// TestKill kills a server at any moment: what it acknowledged is in the book afterwards, and no address is given twice. make soak kills 1,000.
func TestKill(t *testing.T) {
	t.Parallel()
	for range storetest.Rounds(1, 200) {
		testKills(t)
	}
}

// testKills kills a server of one store five times.
func testKills(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "book.db")
	acked := map[string]string{}
	for range 5 {
		before := len(acked)
		for _, line := range storetest.Killed(t, leaserFile+"="+path, inABatch) {
			addr, mac, _ := strings.Cut(line, " ")
			if other, twice := acked[addr]; twice {
				t.Errorf("%s was acknowledged to %s and %s", addr, other, mac)
			}
			acked[addr] = mac
		}
		if len(acked) == before && len(acked) < killPool().Size() {
			t.Error("nothing was acknowledged: the round showed nothing")
		}
	}
	s, b, err := openFile(path, killPool())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for addr, mac := range acked {
		if l, ok := b.ByAddr(netip.MustParseAddr(addr)); !ok || l.MAC.String() != mac {
			t.Errorf("%s was acknowledged to %s, the book says %s, %v", addr, mac, l.MAC, ok)
		}
	}
	if err := b.check(); err != nil {
		t.Error(err)
	}
	t.Logf("5 kills, %d leases acknowledged, %d in the book", len(acked), len(b.All()))
}

// inABatch kills a server in the middle of a batch.
func inABatch(lines int, kill func()) {
	if lines == 250 {
		kill()
	}
}
