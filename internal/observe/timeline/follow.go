package timeline

import (
	"context"

	"github.com/bootlab/bootlab/internal/observe/event"
)

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
