package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// maxOps is how many operations one transaction holds: etcd takes 128.
const maxOps = 100

// finalFlush bounds the last save, when the daemon stops.
const finalFlush = 5 * time.Second

// Run saves events once per Config.Save until ctx ends, and then once more. It returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Save)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.save(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalFlush)
			defer cancel()
			r.save(last)
			return nil
		}
	}
}

// save writes all unsaved events. Those that cannot be written stay for the next time.
func (r *Recorder) save(ctx context.Context) {
	if err := r.saveDeleted(ctx); err != nil {
		r.log.Warn("delete timelines", "err", err)
		return
	}
	for ctx.Err() == nil {
		batch := r.nextBatch()
		if len(batch) == 0 {
			return
		}
		if err := r.write(ctx, batch); err != nil {
			r.log.Warn("save timelines", "err", err)
			return
		}
	}
}

// A machineBatch is what is to be saved of one machine in one transaction.
type machineBatch struct {
	machine *machine
	head    []byte
	events  []saved
	forget  []int64
}

// nextBatch returns as many machines as fit into one transaction. They keep their events until these are written.
func (r *Recorder) nextBatch() (batch []machineBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.dirty {
		if len(batch)*3 >= maxOps { // a head, the events of a boot, often of one more
			break
		}
		head, err := json.Marshal(m.head)
		if err != nil {
			panic(fmt.Sprintf("timeline: marshal the head of %s: %v", m.key, err))
		}
		batch = append(batch, machineBatch{m, head, slices.Clone(m.unsaved), slices.Clone(m.forget)})
		delete(r.dirty, id)
		m.stored = true // already: it may be dropped during the write
	}
	return batch
}

// write saves a batch and then removes it from the machines' lists.
func (r *Recorder) write(ctx context.Context, batch []machineBatch) error {
	err := r.commit(ctx, batch)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch {
		m := p.machine
		if r.machines[m.machineID] != m {
			continue // dropped during the write
		}
		if err != nil {
			r.dirty[m.machineID] = m
			continue
		}
		m.unsaved = slices.Delete(m.unsaved, 0, len(p.events))
		m.forget = slices.Delete(m.forget, 0, len(p.forget))
		r.queue -= len(p.events)
		if len(m.unsaved) == 0 {
			m.unsaved = nil // most machines have no events most of the time: keep no memory for them
		}
	}
	return err
}

func (r *Recorder) commit(ctx context.Context, batch []machineBatch) error {
	var ops []store.Op
	for _, p := range batch {
		for _, boot := range p.forget {
			deletes, err := r.deletes(ctx, bootPrefix(p.machine.key, boot))
			if err != nil {
				return err
			}
			ops = append(ops, deletes...)
		}
		ops = append(ops, puts(p)...)
		ops = append(ops, store.Op{Key: headPrefix + p.machine.key, Value: p.head})
	}
	return r.commitOps(ctx, ops)
}

// puts makes one key of the events of each boot.
func puts(p machineBatch) (ops []store.Op) {
	for events := p.events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].boot == events[0].boot {
			n++
		}
		chunk := make([]event.Event, n)
		for i := range chunk {
			chunk[i] = events[i].event
		}
		value, err := json.Marshal(chunk)
		if err != nil {
			panic(fmt.Sprintf("timeline: marshal events of %s: %v", p.machine.key, err))
		}
		key := bootPrefix(p.machine.key, events[0].boot) + number(chunk[0].At.UnixNano()) + number(int64(chunk[0].Seq))
		if !slices.Contains(p.forget, events[0].boot) {
			ops = append(ops, store.Op{Key: key, Value: value})
		}
		events = events[n:]
	}
	return ops
}

func (r *Recorder) commitOps(ctx context.Context, ops []store.Op) error {
	for part := range slices.Chunk(ops, maxOps) {
		if err := r.deps.Store.Commit(ctx, store.Txn{Then: part}); err != nil {
			return err
		}
	}
	return nil
}

func bootPrefix(key string, boot int64) string { return eventPrefix + key + "/" + number(boot) + "/" }

// number formats n so that keys sort as numbers do.
func number(n int64) string { return fmt.Sprintf("%016x", n) }

// deletes returns the operations that delete everything below a prefix.
func (r *Recorder) deletes(ctx context.Context, prefix string) (ops []store.Op, err error) {
	err = r.deps.Store.Scan(ctx, prefix, func(key string, _ []byte) error {
		ops = append(ops, store.Op{Key: key, Delete: true})
		return nil
	})
	return ops, err
}

// saveDeleted deletes dropped machines. One that is back has a new timeline; its old one is deleted all the same.
func (r *Recorder) saveDeleted(ctx context.Context) error {
	r.mu.Lock()
	deleted := slices.Clone(r.deleted)
	r.mu.Unlock()
	var ops []store.Op
	for _, key := range deleted {
		deletes, err := r.deletes(ctx, eventPrefix+key+"/")
		if err != nil {
			return err
		}
		ops = append(append(ops, deletes...), store.Op{Key: headPrefix + key, Delete: true})
	}
	if err := r.commitOps(ctx, ops); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = slices.Delete(r.deleted, 0, len(deleted))
	return nil
}

// Boots returns the boots of a machine, the oldest first, with unsaved events. A machine without events has none.
func (r *Recorder) Boots(ctx context.Context, key string) ([]Boot, error) {
	key = idOfKey(key).key()
	summaries, unsaved := r.snapshot(key)
	if len(summaries) == 0 {
		return nil, nil
	}
	events := map[int64][]event.Event{}
	err := r.deps.Store.Scan(ctx, eventPrefix+key+"/", func(k string, value []byte) error {
		boot, err := bootOf(k, key)
		var chunk []event.Event
		if err == nil {
			err = json.Unmarshal(value, &chunk)
		}
		if err != nil {
			r.log.Warn("stored events cannot be read: dropped", "host", key, "err", err)
			return nil
		}
		events[boot] = append(events[boot], chunk...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the timeline of %s: %w", key, err)
	}
	for _, s := range unsaved {
		events[s.boot] = append(events[s.boot], s.event)
	}
	boots := make([]Boot, len(summaries))
	for i, s := range summaries {
		boots[i] = s.boot(key, events[s.Started.UnixNano()])
	}
	return boots, nil
}

// snapshot copies what is in memory of a machine. It is taken before the store is read: what is saved in between is then
// seen twice, and not missed.
func (r *Recorder) snapshot(key string) ([]bootSummary, []saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[idOfKey(key)]
	if m == nil {
		return nil, nil
	}
	return slices.Clone(m.head.Boots), slices.Clone(m.unsaved)
}

var errKey = errors.New("not a key of events")

// bootOf reads the boot out of the key of events.
func bootOf(key, machine string) (int64, error) {
	rest := strings.TrimPrefix(key, eventPrefix+machine+"/")
	boot, _, ok := strings.Cut(rest, "/")
	if !ok {
		return 0, fmt.Errorf("%q: %w", key, errKey)
	}
	return strconv.ParseInt(boot, 16, 64)
}

func (s bootSummary) boot(key string, events []event.Event) Boot {
	slices.SortStableFunc(events, compareEvents)
	events = slices.CompactFunc(events, func(a, b event.Event) bool { return compareEvents(a, b) == 0 })
	b := Boot{MAC: s.MAC, Started: s.Started, Ended: s.ended(), Stage: s.Stage, Outcome: s.Outcome, Reason: s.Reason, Claimed: s.Claimed, Events: events}
	if newMachine(idOfKey(key)).class == hosts {
		b.Host = key
	}
	return b
}

// compareEvents orders by time; the numbers of events start again with each start of the daemon.
func compareEvents(a, b event.Event) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq))
}
