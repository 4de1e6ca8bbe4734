package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bootlab/internal/event"
	"bootlab/internal/lab"
	"bootlab/internal/store"
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

	mu        sync.Mutex
	machines  map[string]*machine
	strangers int
	queue     int // events that are not saved
	dirty     map[string]*machine
	gone      []string // keys of machines to be deleted from the store
	readers   map[*reader]struct{}
}

// A machine is what is kept in memory of one.
type machine struct {
	key      string
	stranger bool
	heard    time.Time // when its last event came

	head    head
	unsaved []saved // events that the store does not have yet, oldest first
	forget  []int64 // boots to be deleted from the store
}

// A head is the part of a machine that is loaded at the start. It stands in the store as JSON.
type head struct {
	Boots []sketch    `json:"boots"` // the oldest first
	Last  event.Event `json:"last"`
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
		machines: map[string]*machine{}, dirty: map[string]*machine{}, readers: map[*reader]struct{}{},
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
	err := r.deps.Store.Scan(ctx, headPrefix, func(key string, value []byte) error {
		m := newMachine(strings.TrimPrefix(key, headPrefix))
		if err := json.Unmarshal(value, &m.head); err != nil || len(m.head.Boots) == 0 {
			r.log.Warn("timeline forgotten", "host", m.key, "err", err)
			return nil
		}
		m.heard = m.head.Last.At
		r.machines[m.key] = m
		if m.stranger {
			r.strangers++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load timelines: %w", err)
	}
	return nil
}

func newMachine(key string) *machine {
	_, err := lab.ParseMAC(key)
	return &machine{key: key, stranger: err == nil}
}

// keyOf returns the machine that e is about: the host, or else the MAC. Empty: none.
func keyOf(e event.Event) string {
	switch {
	case e.Host != "":
		return e.Host
	case !e.MAC.IsZero():
		return e.MAC.String()
	}
	return ""
}

// Record implements event.Recorder. It works in memory only.
func (r *Recorder) Record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := keyOf(e)
	r.tellLocked(key, e)
	if key == "" {
		return
	}
	m := r.machines[key]
	if m == nil {
		m = newMachine(key)
		r.makeRoomLocked(m.stranger)
		r.machines[key] = m
		if m.stranger {
			r.strangers++
		}
	}
	m.heard = e.At
	r.keepLocked(m, e)
}

// keepLocked adds e to the boot it belongs to.
func (r *Recorder) keepLocked(m *machine, e event.Event) {
	n := len(m.head.Boots)
	if n == 0 || m.head.Boots[n-1].starts(e) {
		m.head.Boots = append(m.head.Boots, sketch{})
		r.forgetLocked(m)
		n = len(m.head.Boots)
	}
	boot := &m.head.Boots[n-1]
	boot.add(e)
	m.head.Last = e
	r.dirty[m.key] = m
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
func (r *Recorder) makeRoomLocked(stranger bool) {
	have, most := len(r.machines)-r.strangers, r.cfg.Hosts
	if stranger {
		have, most = r.strangers, r.cfg.Strangers
	}
	if have < most {
		return
	}
	var oldest *machine
	for _, m := range r.machines {
		if m.stranger == stranger && (oldest == nil || m.heard.Before(oldest.heard)) {
			oldest = m
		}
	}
	r.removeLocked(oldest)
}

func (r *Recorder) removeLocked(m *machine) {
	delete(r.machines, m.key)
	delete(r.dirty, m.key)
	r.queue -= len(m.unsaved)
	r.gone = append(r.gone, m.key)
	if m.stranger {
		r.strangers--
	}
}

// Forget forgets a machine, such as a host that has left the lab.
func (r *Recorder) Forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.machines[key]; m != nil {
		r.removeLocked(m)
	}
}

// Last returns how a machine stands; ok is false if nothing was ever heard of it.
func (r *Recorder) Last(key string) (s Summary, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[key]
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
