package timeline

import (
	"context"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// A reader follows the events of one machine, or of all.
type reader struct {
	who    ident // the zero ident: all
	events chan event.Event
}

// Follow returns the events of a machine from now on; an empty key follows everything, the house included. A reader that
// is too slow misses events, which are counted. The channel is closed when ctx ends.
func (r *Recorder) Follow(ctx context.Context, key string) <-chan event.Event {
	f := &reader{who: identOfKey(key), events: make(chan event.Event, r.cfg.Follow)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers[f] = struct{}{}
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.readers, f)
		close(f.events)
	})
	return f.events
}

func (r *Recorder) tellLocked(id ident, e event.Event) {
	for f := range r.readers {
		if f.who != (ident{}) && f.who != id {
			continue
		}
		select {
		case f.events <- e:
		default:
			r.dropped[dropFollow].Inc()
		}
	}
}
