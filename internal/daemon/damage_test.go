package daemon

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// A known is what a state file said before it was damaged: by key of the store, the value of a lease or of an install state.
type known map[string]string

// readState opens a state file as the daemon does.
func readState(t *testing.T, dir string) (known, store.Store) {
	t.Helper()
	s, err := statefile.Open(lab.Appliance{State: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bus := event.NewBus(event.BusConfig{Now: time.Now})
	quiet := slog.New(slog.DiscardHandler)
	d := &Daemon{log: quiet, serverLog: quiet, bus: bus}
	l, err := d.openPersistentState(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	k := known{}
	for _, lease := range l.book.All() {
		k["lease/"+lease.Addr.String()] = fmt.Sprint(lease.MAC, lease.State, lease.Start.UnixMilli(), lease.Expiry.UnixMilli(), lease.Hostname)
	}
	for host, status := range l.installs.All() {
		k["install/"+host] = fmt.Sprint(status)
	}
	return k, s
}

// newState writes a state file with leases, of which each was renewed, and install states. It returns what it said after each round.
func newState(t *testing.T, dir string) (rounds []known) {
	t.Helper()
	for renewal := range 2 {
		_, s := readState(t, dir)
		writeState(t, s, time.Duration(1+renewal)*time.Hour)
		closeStore(t, s)
		k, s := readState(t, dir)
		closeStore(t, s)
		rounds = append(rounds, k)
	}
	return rounds
}

func closeStore(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeState(t *testing.T, s store.Store, lease time.Duration) {
	t.Helper()
	book, err := leases.Open(t.Context(), s, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	installs, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: s, Events: event.NewBus(event.BusConfig{Now: time.Now}), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	subnet := netip.MustParsePrefix("10.0.0.0/24")
	for i := range 20 {
		now := time.Now().Truncate(time.Second)
		c := &leases.Change{Subnet: subnet, Lease: leases.Lease{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}), MAC: lab.MAC{2, 0, 0, 0, 0, byte(i)}, State: leases.Active,
			Start: now, Expiry: now.Add(lease), Hostname: fmt.Sprint("node-", i),
		}}
		book.Commit(t.Context(), []*leases.Change{c})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	for i := range 5 {
		h := &lab.Host{Name: fmt.Sprint("host-", i), Profile: &lab.Profile{Name: "p", Install: lab.InstallOnce, InstallTo: "/dev/vda"}}
		if err := installs.Arm(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryDamage flips single bits of a state file, destroys sectors, and cuts it: the daemon opens it, everything that it reads had
// been stored, and what it lacks is in doubt.
func TestEveryDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rounds := newState(t, dir)
	file, err := os.ReadFile(filepath.Join(dir, logfile.Name))
	if err != nil {
		t.Fatal(err)
	}
	n, r := storetest.Rounds(60, 2000), rand.New(rand.NewPCG(1, 2))
	lost := map[string]int{}
	for name, damage := range map[string]func(b []byte) []byte{
		"flip": func(b []byte) []byte { b[place(r, b)] ^= 1 << r.IntN(8); return b },
		"cut":  func(b []byte) []byte { return b[:place(r, b)] },
		"sector": func(b []byte) []byte {
			at := place(r, b) &^ 511
			for i := at; i < min(len(b), at+512); i++ {
				b[i] = byte(r.Uint32())
			}
			return b
		},
	} {
		for range n {
			dir := t.TempDir()
			b := damage(slices.Clone(file))
			if err := os.WriteFile(filepath.Join(dir, logfile.Name), b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, s := readState(t, dir)
			lost[name] += checkState(t, name, rounds, got, s)
			closeStore(t, s)
			if t.Failed() {
				return
			}
			_ = os.RemoveAll(dir)
		}
	}
	if lost["flip"] > 0 {
		t.Errorf("single bits lost %d changes", lost["flip"])
	}
	t.Logf("%d of each; changes that are lost: %v", n, lost)
}

// place returns an offset in the part of the file that is not zeros, most of the time in the records.
func place(r *rand.Rand, b []byte) int {
	if r.IntN(10) == 0 {
		return r.IntN(36) + 4096*r.IntN(2) // a header
	}
	return 8192 + r.IntN(len(b)-8192)
}

// checkState returns how many keys have not the value of the last round, and reports those that are not in doubt, and those whose value is of
// no round.
func checkState(t *testing.T, name string, rounds []known, got known, s store.Store) (lost int) {
	t.Helper()
	want := rounds[len(rounds)-1]
	for key, value := range want {
		if got[key] == value {
			continue
		}
		lost++
		if !store.Doubtful(s, key) {
			t.Errorf("%s: %s is %q and was %q, and nothing says that this is in doubt", name, key, got[key], value)
		}
	}
	for key, value := range got {
		if !slices.ContainsFunc(rounds, func(k known) bool { return k[key] == value }) {
			t.Errorf("%s: %s is %q, and never was stored", name, key, value)
		}
	}
	return lost
}
