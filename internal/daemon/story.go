package daemon

import (
	"context"
	"sync"

	"bootlab/internal/api"
	"bootlab/internal/event"
)

type story struct {
	mu     sync.Mutex
	events map[string][]event.Event
	subs   map[chan event.Event]string
}

func (s *story) Record(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := e.Host
	if k == "" {
		k = e.MAC.String()
	}
	if s.events == nil {
		s.events = map[string][]event.Event{}
		s.subs = map[chan event.Event]string{}
	}
	s.events[k] = append(s.events[k], e)
	for c, h := range s.subs {
		if h == k {
			select {
			case c <- e:
			default:
			}
		}
	}
}

func (c *counter) Boots(_ context.Context, host string) ([]api.Boot, error) {
	c.story.mu.Lock()
	defer c.story.mu.Unlock()
	return []api.Boot{{Host: host, Events: c.story.events[host]}}, nil
}
func (c *counter) Why(context.Context, string) (api.Verdict, error) { return api.Verdict{}, nil }
func (c *counter) Follow(ctx context.Context, host string) (<-chan event.Event, error) {
	ch := make(chan event.Event, 100)
	c.story.mu.Lock()
	c.story.subs[ch] = host
	c.story.mu.Unlock()
	go func() {
		<-ctx.Done()
		c.story.mu.Lock()
		delete(c.story.subs, ch)
		c.story.mu.Unlock()
		close(ch)
	}()
	return ch, nil
}
func (c *counter) lastSeen(*api.Host) {}
