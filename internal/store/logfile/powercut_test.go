package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var errPower = errors.New("power is off")

// A power supply fails after some writes and syncs. What was not synced until then is on disk in part: of each write some sectors,
// of the changes of a file's size the first ones.
type power struct {
	path string

	mu    sync.Mutex
	r     *rand.Rand
	left  int // operations until it fails
	disks []*cutDisk
	name  fs.FileInfo // the file that had the store's name before the last operation
}

// A cutDisk is a file that remembers what of it is durable.
type cutDisk struct {
	disk
	info    fs.FileInfo
	power   *power
	durable []byte
	pending []pendingWrite
}

// A pendingWrite was not synced yet. A truncation has no data.
type pendingWrite struct {
	at   int64
	data []byte
}

const sector = 512

func (p *power) open(path string, flag int) (disk, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left <= 0 {
		return nil, errPower
	}
	f, err := openFile(path, flag&^os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	d := &cutDisk{disk: f, power: p}
	if d.durable, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if d.info, err = f.Stat(); err != nil {
		return nil, err
	}
	p.disks = append(p.disks, d)
	if flag&os.O_TRUNC != 0 {
		d.pending = append(d.pending, pendingWrite{})
		err = f.Truncate(0)
	}
	return d, err
}

// do carries out one operation, unless the power fails before it or in it.
func (d *cutDisk) do(w *pendingWrite, op func() error) error {
	d.power.mu.Lock()
	defer d.power.mu.Unlock()
	d.power.left--
	if d.power.left < 0 {
		return errPower
	}
	if w != nil {
		d.pending = append(d.pending, *w)
	}
	if d.power.left == 0 {
		return errPower
	}
	d.power.name, _ = os.Stat(d.power.path)
	return op()
}

func (d *cutDisk) WriteAt(b []byte, at int64) (n int, err error) {
	err = d.do(&pendingWrite{at, append([]byte{}, b...)}, func() error { n, err = d.disk.WriteAt(b, at); return err })
	return n, err
}

func (d *cutDisk) Truncate(size int64) error {
	return d.do(&pendingWrite{at: size}, func() error { return d.disk.Truncate(size) })
}

func (d *cutDisk) Datasync() error {
	return d.do(nil, func() error {
		d.durable, d.pending = d.after(func() bool { return true }, len(d.pending)), nil
		return nil
	})
}

func resized(b []byte, size int64) []byte {
	if int64(len(b)) < size {
		return append(b, make([]byte, size-int64(len(b)))...)
	}
	return b[:size]
}

// after returns the file with those sectors of pending writes that are kept, and the changes of its size by the first of them.
func (d *cutDisk) after(keep func() bool, sizes int) []byte {
	b := append([]byte{}, d.durable...)
	for i, w := range d.pending {
		switch end := w.at + int64(len(w.data)); {
		case w.data == nil && i < sizes:
			b = resized(resized(b, min(int64(len(b)), w.at)), w.at)
		case i < sizes && end > int64(len(b)):
			b = resized(b, end)
		}
		for from := w.at; from < w.at+int64(len(w.data)); {
			to := min((from/sector+1)*sector, w.at+int64(len(w.data)))
			if keep() && to <= int64(len(b)) {
				copy(b[from:to], w.data[from-w.at:])
			}
			from = to
		}
	}
	return b
}

// survivor writes to another folder what is on disk after the power cut, and returns the store's path there.
func (p *power) survivor(t *testing.T) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	share := []int{0, 50, 50, 90, 100}[p.r.IntN(5)] // percent of the sectors
	keep := func() bool { return p.r.IntN(100) < share }
	to := filepath.Join(t.TempDir(), "store.db")
	for from, to := range map[string]string{p.path: to, p.path + ".new": to + ".new"} {
		info, err := os.Stat(from)
		if err == nil && from == p.path && (p.name == nil || !os.SameFile(info, p.name)) && p.r.IntN(2) == 0 {
			info = p.name // the power failed before the folder was synced
		}
		for _, d := range slices.Backward(p.disks) { // numbers of removed files are used again
			if info != nil && os.SameFile(info, d.info) {
				if err := os.WriteFile(to, d.after(keep, p.r.IntN(len(d.pending)+1)), 0o600); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	return to
}

// A claim is what a writer knows of a key: the value that was acknowledged, and the one that was not yet when the power failed.
type claim struct{ acked, tried string }

// write commits until the power fails. Each value has a twin in the same transaction.
func write(t *testing.T, s *Store, g int, r *rand.Rand, claims map[string]*claim) {
	for i := 0; ; i++ {
		key := fmt.Sprint(g, "/", r.IntN(12))
		c := claims[key]
		if c == nil {
			c = &claim{}
			claims[key] = c
		}
		value := []byte(fmt.Sprint(time.Now().UnixNano(), " ", i, string(make([]byte, r.IntN(200)))))
		ops := []store.Op{{Key: key, Value: value}, {Key: "twin/" + key, Value: value}}
		if r.IntN(5) == 0 {
			ops, value = []store.Op{{Key: key, Delete: true}, {Key: "twin/" + key, Delete: true}}, nil
		}
		c.tried = string(value)
		filler := store.Put(fmt.Sprint("filler/", g), make([]byte, r.IntN(3000)))
		for _, err := range s.CommitAll(t.Context(), []store.Txn{{Then: ops}, filler}) {
			if err != nil {
				return
			}
		}
		c.acked = c.tried
	}
}

// TestPowerCuts cuts the power at random moments, of commits, compactions, starts and stops: every acknowledged change is there
// afterwards, no transaction is there in part, and no loss is reported.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	rounds, seed := storetest.Rounds(40, 2000), uint64(1)
	if storetest.Long() {
		seed = rand.Uint64()
	}
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SEED=%d", seed)
	const lives = 20 // of one store
	for chain := range rounds / lives {
		t.Run(fmt.Sprint(chain), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(chain)))
			path := filepath.Join(t.TempDir(), "store.db")
			claims := make([]map[string]*claim, 3)
			for g := range claims {
				claims[g] = map[string]*claim{}
			}
			for range lives {
				p := &power{path: path, r: rand.New(rand.NewPCG(r.Uint64(), 1)), left: 1 + r.IntN(200)}
				p.name, _ = os.Stat(path)
				live(t, p, r, claims)
				path = p.survivor(t)
				checkClaims(t, path, claims)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// live runs a store until the power fails. Now and then it is closed before.
func live(t *testing.T, p *power, r *rand.Rand, claims []map[string]*claim) {
	cfg := testConfig(small, p.open)
	cfg.tick = 500 * time.Microsecond
	for off := false; !off; {
		s, _, err := openWith(p.path, cfg)
		if err != nil {
			return
		}
		stop := time.AfterFunc(time.Duration(r.IntN(20))*time.Millisecond, func() { s.Close() })
		var wg sync.WaitGroup
		for g := range claims {
			own := rand.New(rand.NewPCG(uint64(g), r.Uint64()))
			wg.Go(func() { write(t, s, g, own, claims[g]) })
		}
		wg.Wait()
		stop.Stop()
		_ = s.Close()
		p.mu.Lock()
		off = p.left <= 0
		p.mu.Unlock()
	}
}

func checkClaims(t *testing.T, path string, claims []map[string]*claim) {
	t.Helper()
	s, damage, err := openWith(path, testConfig(never, openFile))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, l := range damage {
		if l.Kind == Lost {
			t.Errorf("%v", l)
		}
	}
	got := content(t, s, "")
	for g := range claims {
		for key, c := range claims[g] {
			if v := got[key]; v != c.acked && v != c.tried || got["twin/"+key] != v {
				t.Errorf("%s is %.25q and its twin %.25q; acknowledged was %.25q, tried %.25q", key, v, got["twin/"+key], c.acked, c.tried)
			}
			c.acked, c.tried = got[key], got[key]
		}
	}
}
