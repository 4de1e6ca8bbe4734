package boot

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
)

// A countedKernel counts what it is asked.
type countedKernel struct {
	Neighbours
	asked int
	err   error
}

func (k *countedKernel) Entry(netip.Addr, []lab.MAC) (neighbour.Found, error) {
	k.asked++
	return neighbour.Found{User: neighbour.Foreign}, k.err
}

// TestNeighbourCache: a machine that fetches many files costs one question to the kernel, and no answer outlives its time, a reload or
// an error.
func TestNeighbourCache(t *testing.T) {
	t.Parallel()
	var c neighbourCache
	k, table, of := &countedKernel{err: errors.New("no kernel")}, &Table{}, neighbourKey{lab.MAC{2}, netip.MustParseAddr("10.0.0.1")}
	want := func(when string, asked int) {
		t.Helper()
		if found, err := c.entry(k, table, of, nil); k.asked != asked || err == nil && found.User != neighbour.Foreign {
			t.Errorf("%s: %v, %v; the kernel was asked %d times, want %d", when, found, err, k.asked, asked)
		}
	}
	want("an error", 1)
	k.err = nil
	want("after an error", 2)
	c.known[of] = cachedNeighbour{c.known[of].Found, time.Now().Add(time.Hour)}
	want("again", 2)
	c.known[of] = cachedNeighbour{c.known[of].Found, time.Now()}
	want("once its time is over", 3)
	of.addr = netip.MustParseAddr("10.0.0.2")
	want("another address", 4)
	c.known[of] = cachedNeighbour{c.known[of].Found, time.Now().Add(time.Hour)}
	table = &Table{}
	want("after a reload", 5)
}
