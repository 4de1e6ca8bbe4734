package daemon

import (
	"maps"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
)

// restartGrace is how long after a start a machine may be in another stage than before it: balancers have to check it first. If it is in
// that stage again by then, it was there all the time.
const restartGrace = time.Minute

// ages are since when machines are in their stages, or clusters in their phases, by name. They outlive a restart.
type ages struct {
	started time.Time // the daemon
	stored  map[string]cluster.Since
	current map[string]cluster.Since
}

func newAges(started time.Time) ages {
	return ages{started, map[string]cluster.Since{}, map[string]cluster.Since{}}
}

// note notes what name is at now.
func (a *ages) note(name, is string, now time.Time) {
	if a.current[name].Is == is {
		return
	}
	s := cluster.Since{Is: is, At: now}
	if before := a.stored[name]; before.Is == is && now.Sub(a.started) < restartGrace {
		s = before
	}
	a.current[name] = s
}

// forget makes what name was at before the restart count no more: an admin has asked for something else.
func (a *ages) forget(name string) { delete(a.stored, name) }

// toStore returns what a restart should find of name. A stage that began with the daemon may be one on the way to that before.
func (a *ages) toStore(name string, now time.Time) cluster.Since {
	s, before := a.current[name], a.stored[name]
	if before.Is != "" && now.Sub(a.started) < restartGrace {
		return before
	}
	return s
}

// noteAges stores what has changed of the stages and phases of a cluster.
func (c *clusters) noteAges(name string, s cluster.State, now time.Time) {
	c.mu.Lock()
	r := c.records[name]
	phase, stages := c.phases.toStore(name, now), map[string]cluster.Since{}
	for _, m := range s.Machines {
		stages[m.Host.Name] = c.stages.toStore(m.Host.Name, now)
	}
	c.mu.Unlock()
	same := func(x, y cluster.Since) bool { return x.Is == y.Is && x.At.Equal(y.At) }
	if same(r.Phase, phase) && maps.EqualFunc(r.Stages, stages, same) {
		return
	}
	if err := c.note(name, func(r *cluster.Record) { r.Phase, r.Stages = phase, stages }); err != nil {
		c.serverLog.Warn("state of the cluster not stored", "cluster", name, "err", err)
	}
}
