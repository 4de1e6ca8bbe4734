package timeline

import (
	"cmp"
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

	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// A Config bounds what is remembered. The zero Config is what the documentation says.
type Config struct {
	Boots   int           // kept of a machine; 10
	Events  int           // kept of a boot; beyond, those that matter, up to twice as many; 200
	Refused int           // kept of a boot: refusals and failures of the machine's own requests; 100
	Claimed int           // kept of a boot: requests of other machines in the machine's name; 20
	Hosts   int           // with a name in the lab; 20,000
	Unknown int           // MACs that the lab does not know; the one without an event for longest is evicted; 256
	Queue   int           // events that wait to be saved; 8192
	Follow  int           // events that wait for one follower; 256
	Save    time.Duration // between two writes; 1 s
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *int
		def   int
	}{{&c.Boots, 10}, {&c.Events, 200}, {&c.Refused, 100}, {&c.Claimed, 20}, {&c.Hosts, 20_000}, {&c.Unknown, 256}, {&c.Queue, 8192}, {&c.Follow, 256}} {
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
	Store      store.Store
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// A Recorder keeps the boots of all machines. It is safe for concurrent use.
type Recorder struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	dropped map[string]prometheus.Counter

	mu        sync.Mutex
	machines  map[machineID]*machine
	recent    [2]list.List // machines by their last event, the oldest first; by class
	queue     int          // events that are not saved
	dirty     map[machineID]*machine
	deleted   []string // keys of machines to be deleted from the store
	followers map[*follower]struct{}
}

// A machineID names a machine: a host of the lab, or else a MAC. It is not formatted for each event, which would be most of the work when
// many unknown machines ask at once.
type machineID struct {
	host string
	mac  lab.MAC
}

// idOf returns the machine that e is about; the zero machineID: none.
func idOf(e event.Event) machineID {
	if e.Host != "" {
		return idOfKey(e.Host)
	}
	return machineID{mac: e.MAC}
}

// idOfKey parses what key formats. The name of a machine of a pool is its MAC with hyphens: it is the same machine as before it had an
// address.
func idOfKey(key string) machineID {
	if len(key) == len("52:54:00:00:00:00") {
		if m, err := lab.ParseMAC(key); err == nil {
			return machineID{mac: m}
		}
	}
	return machineID{host: key}
}

// key is the machine's name for people and in the store.
func (id machineID) key() string {
	if id.host != "" || id.mac.IsZero() {
		return id.host
	}
	return id.mac.String()
}

// A machine is what is kept in memory of one.
type machine struct {
	machineID
	key    string
	class  int           // hosts or unknown
	recent *list.Element // in Recorder.recent
	stored bool          // the store has its key

	head    head
	unsaved []saved // events that the store does not have yet, oldest first
	forget  []int64 // boots to be deleted from the store
}

// A head is the part of a machine that is loaded at the start. It is stored as JSON.
type head struct {
	Boots []bootSummary `json:"boots"` // the oldest first
	Last  event.Event   `json:"last"`
	Addrs []netip.Addr  `json:"addrs,omitempty"` // that it leased, the latest last
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

// Open returns a recorder with the timelines that were saved. Those that cannot be read are logged and dropped.
func Open(ctx context.Context, cfg Config, deps Deps) (*Recorder, error) {
	required.Fields(deps)
	r := &Recorder{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log, dropped: map[string]prometheus.Counter{},
		machines: map[machineID]*machine{}, dirty: map[machineID]*machine{}, followers: map[*follower]struct{}{},
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricDropped,
		Help: "Events that were dropped because the queue to the store or to a follower was full, or a boot had too many."}, []string{"queue"})
	for _, queue := range []string{dropSave, dropFollow, dropBoot} {
		r.dropped[queue] = dropped.WithLabelValues(queue)
	}
	deps.Registerer.MustRegister(dropped)
	return r, r.load(ctx)
}

func (r *Recorder) load(ctx context.Context) error {
	var all []*machine
	err := r.deps.Store.Scan(ctx, headPrefix, func(key string, value []byte) error {
		m := newMachine(idOfKey(strings.TrimPrefix(key, headPrefix)))
		if err := json.Unmarshal(value, &m.head); err != nil || len(m.head.Boots) == 0 {
			r.log.Warn("stored timeline cannot be read: dropped", "host", m.key, "err", err)
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

// The classes of machines, each with a bound of its own.
const (
	hosts = iota
	unknown
)

// newMachine returns a machine without boots. One whose name is a MAC is unknown to the lab, as is the name of a machine in a pool.
func newMachine(id machineID) *machine {
	m := &machine{machineID: id, key: id.key()}
	if _, err := lab.ParseMAC(m.key); err == nil {
		m.class = unknown
	}
	return m
}

// addLocked adds a machine as the one with the latest event.
func (r *Recorder) addLocked(m *machine) {
	r.machines[m.machineID] = m
	m.recent = r.recent[m.class].PushBack(m)
}

// Record implements event.Recorder. It works in memory only.
func (r *Recorder) Record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := idOf(e)
	r.sendLocked(id, e)
	if id == (machineID{}) {
		return
	}
	m := r.machines[id]
	if m == nil {
		if byOthers(e) {
			return // it is no boot
		}
		m = newMachine(id)
		if m.class == unknown && (e.Claimed || e.Kind == event.DHCPRogue) {
			return // a made-up MAC, as that of bootlab doctor's DHCPDISCOVER: it would take the place of a machine that exists
		}
		m.reuse(r.evictMachineLocked(m.class))
		r.addLocked(m)
	} else {
		r.recent[m.class].MoveToBack(m.recent)
	}
	r.addEventLocked(m, e)
}

// addEventLocked adds e to the boot it belongs to. A request in the machine's name from elsewhere neither starts a boot nor changes its state.
func (r *Recorder) addEventLocked(m *machine, e event.Event) {
	if e.Kind == event.DHCPAck {
		m.head.addAddr(e.Addr)
	}
	n, own := len(m.head.Boots), m.head.own(e)
	if n == 0 || own && !byOthers(e) && (m.head.Boots[n-1].others() || m.head.Boots[n-1].starts(e)) {
		next := bootSummary{}
		if n > 0 {
			next = m.head.Boots[n-1].next(e.At)
		}
		m.head.Boots = append(m.head.Boots, next)
		r.evictBootLocked(m)
		n = len(m.head.Boots)
	}
	boot := &m.head.Boots[n-1]
	kept := boot.count(e, own, r.cfg)
	if own {
		boot.advance(e)
	}
	if !byOthers(e) {
		m.head.Last = e
	}
	r.dirty[m.machineID] = m
	switch {
	case !kept:
		r.dropped[dropBoot].Inc()
	case r.queue >= r.cfg.Queue:
		r.dropped[dropSave].Inc()
	default:
		r.queue++
		m.unsaved = append(m.unsaved, saved{boot.Started.UnixNano(), e})
	}
}

// evictBootLocked drops a boot if there are too many: the oldest that did not fail, or else the oldest.
func (r *Recorder) evictBootLocked(m *machine) {
	if len(m.head.Boots) <= r.cfg.Boots {
		return
	}
	i := slices.IndexFunc(m.head.Boots[:len(m.head.Boots)-1], func(s bootSummary) bool { return s.Outcome != Failed })
	i = max(i, 0)
	m.forget = append(m.forget, m.head.Boots[i].Started.UnixNano())
	m.head.Boots = slices.Delete(m.head.Boots, i, i+1)
}

// evictMachineLocked drops the machine without an event for longest, if there are too many of its class, and returns it; nil: it dropped none.
func (r *Recorder) evictMachineLocked(class int) *machine {
	most := [...]int{hosts: r.cfg.Hosts, unknown: r.cfg.Unknown}[class]
	l := &r.recent[class]
	if l.Len() < most {
		return nil
	}
	m := l.Remove(l.Front()).(*machine)
	delete(r.machines, m.machineID)
	delete(r.dirty, m.machineID)
	r.queue -= len(m.unsaved)
	if m.stored {
		r.deleted = append(r.deleted, m.key)
	}
	return m
}

// reuse gives a new machine the lists of one that was dropped. When many unknown machines boot at once, each takes the place of another:
// new lists for each would be most of the daemon's garbage. The struct itself may still be in a batch that is being saved.
func (m *machine) reuse(dropped *machine) {
	if dropped != nil {
		m.head.Boots, m.head.Addrs, m.unsaved = dropped.head.Boots[:0], dropped.head.Addrs[:0], dropped.unsaved[:0]
	}
}

// Last returns the state of a machine; ok is false if it has no event.
func (r *Recorder) Last(key string) (s Summary, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[idOfKey(key)]
	if m == nil {
		return Summary{}, false
	}
	return m.summary(), true
}

// Loading reports whether the machine that e is about may load by TFTP now: its firmware or its boot loader is at work, as far as its own
// events show. What it does not do for long, it does not do any more.
func (r *Recorder) Loading(e event.Event, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[idOf(e)]
	if m == nil {
		return false
	}
	last := &m.head.Boots[len(m.head.Boots)-1]
	return last.Loading && now.Sub(last.Last) <= systemPause
}

// All returns the state of every machine, sorted by key.
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
	return Summary{
		Key: m.key, Started: b.Started, Stage: b.Stage, Outcome: b.Outcome, Reason: b.Reason, Last: m.head.Last,
		Active: b.Last, At: cmp.Or(b.At, b.Stage), // an older version stored no At
		Done: b.Done, Asked: b.Asked, Fetched: b.Fetched, Served: b.Served, Returns: returns(m.head.Boots),
	}
}

// A follower follows the events of one machine, or of all.
type follower struct {
	who    machineID // the zero machineID: all
	events chan event.Event
}

// Follow returns the events of a machine from now on; an empty key follows everything, the daemon included. A follower that
// is too slow loses events, which are counted. The channel is closed when ctx ends.
func (r *Recorder) Follow(ctx context.Context, key string) <-chan event.Event {
	f := &follower{who: idOfKey(key), events: make(chan event.Event, r.cfg.Follow)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followers[f] = struct{}{}
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.followers, f)
		close(f.events)
	})
	return f.events
}

func (r *Recorder) sendLocked(id machineID, e event.Event) {
	for f := range r.followers {
		if f.who != (machineID{}) && f.who != id {
			continue
		}
		select {
		case f.events <- e:
		default:
			r.dropped[dropFollow].Inc()
		}
	}
}
