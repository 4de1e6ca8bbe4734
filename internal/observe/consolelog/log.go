package consolelog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/required"
)

// A Config says how much is kept. Dir is required.
type Config struct {
	Dir   string // of this Log alone; it is made with mode 0700
	Boots int    // of each host; default 5
	Bytes int64  // of each boot; default 256 KiB
	Total int64  // of all; default 256 MiB
	Queue int    // parts of output that wait for the disk; default 1024
}

// Deps are what a Log needs. All but Found are required.
type Deps struct {
	Log        *slog.Logger
	Now        func() time.Time
	Registerer prometheus.Registerer
	Found      func(Finding) // called for lines that matter, from Run; once for each meaning and boot
}

// A Finding is a line that matters.
type Finding struct {
	Host    string
	Meaning Meaning
	Line    string // without control sequences
}

// MetricDropped counts bytes of output that were not kept because the disk was too slow or failed.
const MetricDropped = "bootlab_console_dropped_bytes_total"

// A Log keeps the output of consoles. It is safe for concurrent use.
type Log struct {
	cfg     Config
	deps    Deps
	queue   chan part
	dropped prometheus.Counter

	files sync.Mutex // held while files are read and written, which a disk that hangs may never end
	hosts map[string]*host
	total int64 // bytes of all files
	bad   bool  // the last write failed, and was logged

	mu    sync.Mutex
	boots map[string][]Boot // by host, for those who do not wait for the disk
}

// A part is output on its way to the disk; a boot, if key is set.
type part struct {
	host, key string
	output    []byte
	flushed   chan struct{} // closed when all before is on its way to the disk
}

// A host is the boots of one host, the oldest first.
type host struct {
	boots   []*boot
	scanner Scanner
	found   map[Meaning]bool // in this boot
}

// Open returns a Log with the boots that are in its folder.
func Open(cfg Config, deps Deps) (*Log, error) {
	required.Fields(deps, "Found")
	cfg = cfg.withDefaults()
	l := &Log{
		cfg: cfg, deps: deps, queue: make(chan part, cfg.Queue), hosts: map[string]*host{}, boots: map[string][]Boot{},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: MetricDropped, Help: "Bytes of serial consoles that were not kept, because the disk was too slow or failed."}),
	}
	if err := deps.Registerer.Register(l.dropped); err != nil {
		return nil, fmt.Errorf("register metrics of consoles: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the logs of consoles: %w", err)
	}
	folders, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the logs of consoles: %w", err)
	}
	for _, f := range folders {
		h := &host{found: map[Meaning]bool{}}
		if h.boots = readBoots(filepath.Join(cfg.Dir, f.Name())); len(h.boots) == 0 {
			continue
		}
		l.hosts[f.Name()] = h
		for _, b := range h.boots {
			l.total += b.size()
		}
		l.listLocked(f.Name())
	}
	return l, nil
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		to  *int64
		def int64
	}{{&c.Bytes, 256 << 10}, {&c.Total, 256 << 20}} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
	if c.Boots == 0 {
		c.Boots = 5
	}
	if c.Queue == 0 {
		c.Queue = 1024
	}
	return c
}

// Begin says that a host's machine has started. key names the run of the machine: while it is that of the last boot, that one goes
// on. An empty key is always another boot. It does not block.
func (l *Log) Begin(host, key string) {
	if key == "" {
		key = "reset"
	}
	l.put(part{host: host, key: key})
}

// Write takes output of a host, which it may keep. It does not block: what the disk is too slow for is dropped and counted.
func (l *Log) Write(host string, output []byte) { l.put(part{host: host, output: output}) }

func (l *Log) put(p part) {
	select {
	case l.queue <- p:
	default:
		l.dropped.Add(float64(len(p.output)))
	}
}

// Flush returns when all output that came before is in its files, or ctx has ended.
func (l *Log) Flush(ctx context.Context) {
	p := part{flushed: make(chan struct{})}
	select {
	case l.queue <- p:
	case <-ctx.Done():
		return
	}
	select {
	case <-p.flushed:
	case <-ctx.Done():
	}
}

// Run writes output to disk until ctx ends, and then what is left. It returns nil.
func (l *Log) Run(ctx context.Context) error {
	defer l.closeFiles()
	for {
		select {
		case p := <-l.queue:
			l.take(p)
		case <-ctx.Done():
			for len(l.queue) > 0 {
				l.take(<-l.queue)
			}
			return nil
		}
	}
}

// take writes a part and looks for lines that matter.
func (l *Log) take(p part) {
	if p.flushed != nil {
		close(p.flushed)
		return
	}
	l.files.Lock()
	h := l.hosts[p.host]
	if h == nil {
		h = &host{found: map[Meaning]bool{}}
		l.hosts[p.host] = h
	}
	var err error
	if p.key != "" {
		err = l.beginLocked(p.host, h, p.key)
	} else {
		err = l.writeLocked(p.host, h, p.output)
	}
	l.listLocked(p.host)
	failed := err != nil && !l.bad
	l.bad = err != nil
	var found []Finding
	h.scanner.Scan(p.output, func(line string) {
		if m := meaningOf(line); m != Nothing && !h.found[m] {
			h.found[m] = true
			found = append(found, Finding{Host: p.host, Meaning: m, Line: line})
		}
	})
	l.files.Unlock()
	if failed {
		l.deps.Log.Warn("console output not stored", "host", p.host, "err", err)
	}
	if err != nil {
		l.dropped.Add(float64(len(p.output)))
	}
	for _, f := range found {
		if l.deps.Found != nil {
			l.deps.Found(f)
		}
	}
}

// beginLocked begins a boot, unless the last one has this key.
func (l *Log) beginLocked(name string, h *host, key string) error {
	if n := len(h.boots); n > 0 && (h.boots[n-1].key == key || key == "reset" && h.boots[n-1].size() == 0) {
		return nil // SeaBIOS resets a machine once more after its reset
	}
	h.found, h.scanner = map[Meaning]bool{}, Scanner{}
	if n := len(h.boots); n > 0 && h.boots[n-1].size() == 0 { // it wrote nothing: no boot, or a return to a snapshot
		h.boots[n-1].close()
		h.boots[n-1].remove()
		h.boots = h.boots[:n-1]
	}
	if n := len(h.boots); n > 0 {
		if key == "reset" { // the machine is the same
			key = h.boots[n-1].key
		}
		h.boots[n-1].close()
	}
	b, err := newBoot(filepath.Join(l.cfg.Dir, name), key, l.deps.Now())
	if err != nil {
		return err
	}
	h.boots = append(h.boots, b)
	for len(h.boots) > l.cfg.Boots {
		l.dropOldestLocked(h)
	}
	return nil
}

func (l *Log) writeLocked(name string, h *host, output []byte) error {
	if len(h.boots) == 0 {
		if err := l.beginLocked(name, h, "unknown"); err != nil {
			return err
		}
	}
	b := h.boots[len(h.boots)-1]
	before := b.size()
	err := b.write(l.deps.Now(), output, l.cfg.Bytes)
	l.total += b.size() - before
	for l.total > l.cfg.Total && l.dropOldestOfAllLocked() {
	}
	return err
}

func (l *Log) dropOldestLocked(h *host) {
	l.total -= h.boots[0].size()
	h.boots[0].remove()
	h.boots = h.boots[1:]
}

// dropOldestOfAllLocked drops the oldest boot that is not the last of its host, and reports whether there is one.
func (l *Log) dropOldestOfAllLocked() bool {
	var oldest *host
	var of string
	for name, h := range l.hosts {
		if len(h.boots) > 1 && (oldest == nil || h.boots[0].started.Before(oldest.boots[0].started)) {
			oldest, of = h, name
		}
	}
	if oldest != nil {
		l.dropOldestLocked(oldest)
		l.listLocked(of)
	}
	return oldest != nil
}

func (l *Log) closeFiles() {
	l.files.Lock()
	defer l.files.Unlock()
	for _, h := range l.hosts {
		if n := len(h.boots); n > 0 {
			h.boots[n-1].close()
		}
	}
}

// A Boot describes what is kept of one boot.
type Boot struct {
	Started time.Time // of the machine, as far as it was seen
	Last    time.Time // of its last output
	Bytes   int64     // kept
	Dropped int64     // from its middle
}

// Boots returns the boots of a host in which it wrote something, the oldest first. It does not wait for the disk.
func (l *Log) Boots(host string) []Boot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.boots[host]
}

// listLocked notes what Boots returns. The caller holds files.
func (l *Log) listLocked(host string) {
	var boots []Boot
	for _, b := range l.hosts[host].boots {
		if b.size() > 0 {
			boots = append(boots, Boot{Started: b.started, Last: b.last, Bytes: b.size(), Dropped: b.dropped()})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boots[host] = boots
}

// Read returns the output of the boot that started at a time, as the machine wrote it. Where a part was dropped, a line says so.
func (l *Log) Read(host string, started time.Time) ([]byte, error) {
	l.files.Lock()
	defer l.files.Unlock()
	if h := l.hosts[host]; h != nil {
		for _, b := range h.boots {
			if b.started.Equal(started) {
				return b.read()
			}
		}
	}
	return nil, fmt.Errorf("no console output of host %s from %s is kept", host, started.Format(time.RFC3339))
}
