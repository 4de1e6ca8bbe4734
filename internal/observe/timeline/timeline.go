package timeline

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// A Config bounds what is remembered. The zero Config is what the documentation says.
type Config struct {
	Boots     int           // kept of a machine; 10
	Events    int           // kept of a boot; beyond, those that matter, up to twice as many; 200
	Hosts     int           // with a name in the lab; 20,000
	Strangers int           // MACs that the lab does not know; the one not heard of for longest goes; 256
	Queue     int           // events that wait to be saved; 8192
	Follow    int           // events that wait for one reader; 256
	Save      time.Duration // between two writes; 1 s
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *int
		def   int
	}{{&c.Boots, 10}, {&c.Events, 200}, {&c.Hosts, 20_000}, {&c.Strangers, 256}, {&c.Queue, 8192}, {&c.Follow, 256}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if c.Save <= 0 {
		c.Save = time.Second
	}
	return c
}

// Deps are what a Recorder needs. All are required.
type Deps struct {
	Store   store.Store
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// A Recorder keeps the boots of all machines. It is safe for concurrent use.
type Recorder struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	dropped map[string]prometheus.Counter

	mu       sync.Mutex
	machines map[ident]*machine
	heard    [2]list.List // machines by when they were last heard of, the longest silent first: hosts, strangers
	queue    int          // events that are not saved
	dirty    map[ident]*machine
	gone     []string // keys of machines to be deleted from the store
	readers  map[*reader]struct{}
}

// An ident names a machine: a host of the lab, or else a MAC. Events are sorted by it without being formatted, since in a
// storm of strangers that is most of the work.
type ident struct {
	host string
	mac  lab.MAC
}

// identOf returns the machine that e is about; the zero ident: none.
func identOf(e event.Event) ident {
	if e.Host != "" {
		return ident{host: e.Host}
	}
	return ident{mac: e.MAC}
}

// identOfKey reads what key writes.
func identOfKey(key string) ident {
	if strings.Contains(key, ":") {
		if m, err := lab.ParseMAC(key); err == nil {
			return ident{mac: m}
		}
	}
	return ident{host: key}
}

// key is the machine's name for people and in the store.
func (id ident) key() string {
	if id.host != "" || id.mac.IsZero() {
		return id.host
	}
	return id.mac.String()
}

// A machine is what is kept in memory of one.
type machine struct {
	ident
	key    string
	sort   int           // index of Recorder.heard
	heard  *list.Element // its place there
	stored bool          // the store has something of it

	head    head
	unsaved []saved // events that the store does not have yet, oldest first
	forget  []int64 // boots to be deleted from the store
}

// A head is the part of a machine that is loaded at the start. It stands in the store as JSON.
type head struct {
	Boots []sketch     `json:"boots"` // the oldest first
	Last  event.Event  `json:"last"`
	Addrs []netip.Addr `json:"addrs,omitempty"` // that it was given, the latest last
}

// saved is one event on its way to the store.
type saved struct {
	boot  int64 // when its boot started, in nanoseconds: the boot's name in the store
	event event.Event
}

// Labels of the metric of dropped events.
const (
	dropSave   = "save"
	dropFollow = "follow"
	dropBoot   = "boot"
)

// MetricDropped counts events that were not kept or not shown.
const MetricDropped = "bootlab_timeline_events_dropped_total"

// Keys in the store: "timelines/<machine>" holds the head, "timeline/<machine>/<boot>/<event>" events.
const (
	headPrefix  = "timelines/"
	eventPrefix = "timeline/"
)

// Open returns a recorder that knows what was saved. What cannot be read is forgotten, and said in the log.
func Open(ctx context.Context, cfg Config, deps Deps) (*Recorder, error) {
	for name, missing := range map[string]bool{"Store": deps.Store == nil, "Log": deps.Log == nil, "Metrics": deps.Metrics == nil} {
		if missing {
			panic("timeline: Deps." + name + " is nil")
		}
	}
	r := &Recorder{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log, dropped: map[string]prometheus.Counter{},
		machines: map[ident]*machine{}, dirty: map[ident]*machine{}, readers: map[*reader]struct{}{},
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricDropped,
		Help: "Events that were not saved, not shown to a reader, or too many for one boot."}, []string{"queue"})
	for _, queue := range []string{dropSave, dropFollow, dropBoot} {
		r.dropped[queue] = dropped.WithLabelValues(queue)
	}
	deps.Metrics.MustRegister(dropped)
	return r, r.load(ctx)
}

func (r *Recorder) load(ctx context.Context) error {
	var all []*machine
	err := r.deps.Store.Scan(ctx, headPrefix, func(key string, value []byte) error {
		m := newMachine(identOfKey(strings.TrimPrefix(key, headPrefix)))
		if err := json.Unmarshal(value, &m.head); err != nil || len(m.head.Boots) == 0 {
			r.log.Warn("timeline forgotten", "host", m.key, "err", err)
			return nil
		}
		m.stored = true
		all = append(all, m)
		return nil
	})
	if err != nil {
		return fmt.Errorf("load timelines: %w", err)
	}
	slices.SortFunc(all, func(a, b *machine) int { return a.head.Last.At.Compare(b.head.Last.At) })
	for _, m := range all {
		r.addLocked(m)
	}
	return nil
}

// The sorts of machines, each with a bound of its own.
const (
	hosts = iota
	strangers
)

// newMachine knows a stranger by its name: a pool's machine is called by its MAC, too.
func newMachine(id ident) *machine {
	m := &machine{ident: id, key: id.key()}
	if _, err := lab.ParseMAC(m.key); err == nil {
		m.sort = strangers
	}
	return m
}

// addLocked takes a machine in as the one heard of last.
func (r *Recorder) addLocked(m *machine) {
	r.machines[m.ident] = m
	m.heard = r.heard[m.sort].PushBack(m)
}

// Record implements event.Recorder. It works in memory only.
func (r *Recorder) Record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := identOf(e)
	r.tellLocked(id, e)
	if id == (ident{}) {
		return
	}
	m := r.machines[id]
	if m == nil {
		m = newMachine(id)
		r.makeRoomLocked(m.sort)
		r.addLocked(m)
	} else {
		r.heard[m.sort].MoveToBack(m.heard)
	}
	r.keepLocked(m, e)
}

// keepLocked adds e to the boot it belongs to. What is not the machine's own doing begins no boot of it, and changes
// nothing in one.
func (r *Recorder) keepLocked(m *machine, e event.Event) {
	if e.Kind == event.DHCPAck {
		m.head.hold(e.Addr)
	}
	n, own := len(m.head.Boots), m.head.own(e)
	if n == 0 || own && (m.head.Boots[n-1].Last.IsZero() || m.head.Boots[n-1].starts(e)) {
		m.head.Boots = append(m.head.Boots, sketch{})
		r.forgetLocked(m)
		n = len(m.head.Boots)
	}
	boot := &m.head.Boots[n-1]
	boot.count(e)
	if own {
		boot.advance(e)
	}
	m.head.Last = e
	r.dirty[m.ident] = m
	switch {
	case boot.Events > 2*r.cfg.Events || boot.Events > r.cfg.Events && !matters(e):
		r.dropped[dropBoot].Inc()
	case r.queue >= r.cfg.Queue:
		r.dropped[dropSave].Inc()
	default:
		r.queue++
		m.unsaved = append(m.unsaved, saved{boot.Started.UnixNano(), e})
	}
}

// forgetLocked makes room for a boot: the oldest that did not fail goes first, then the oldest.
func (r *Recorder) forgetLocked(m *machine) {
	if len(m.head.Boots) <= r.cfg.Boots {
		return
	}
	i := slices.IndexFunc(m.head.Boots[:len(m.head.Boots)-1], func(s sketch) bool { return s.Outcome != Failed })
	i = max(i, 0)
	m.forget = append(m.forget, m.head.Boots[i].Started.UnixNano())
	m.head.Boots = slices.Delete(m.head.Boots, i, i+1)
}

// makeRoomLocked forgets the machine that was not heard of for longest, if there are too many of its sort.
func (r *Recorder) makeRoomLocked(sort int) {
	most := [...]int{hosts: r.cfg.Hosts, strangers: r.cfg.Strangers}[sort]
	if known := &r.heard[sort]; known.Len() >= most {
		r.removeLocked(known.Front().Value.(*machine))
	}
}

func (r *Recorder) removeLocked(m *machine) {
	delete(r.machines, m.ident)
	delete(r.dirty, m.ident)
	r.heard[m.sort].Remove(m.heard)
	r.queue -= len(m.unsaved)
	if m.stored {
		r.gone = append(r.gone, m.key)
	}
}

// Forget forgets a machine, such as a host that has left the lab.
func (r *Recorder) Forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.machines[identOfKey(key)]; m != nil {
		r.removeLocked(m)
	}
}

// Last returns how a machine stands; ok is false if nothing was ever heard of it.
func (r *Recorder) Last(key string) (s Summary, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[identOfKey(key)]
	if m == nil {
		return Summary{}, false
	}
	return m.summary(), true
}

// All returns how every machine stands, sorted by key.
func (r *Recorder) All() []Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Summary, 0, len(r.machines))
	for _, m := range r.machines {
		all = append(all, m.summary())
	}
	slices.SortFunc(all, func(a, b Summary) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func (m *machine) summary() Summary {
	b := m.head.Boots[len(m.head.Boots)-1]
	return Summary{Key: m.key, Started: b.Started, Stage: b.Stage, Outcome: b.Outcome, Reason: b.Reason, Last: m.head.Last}
}
