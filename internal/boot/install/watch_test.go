package install

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// doneBy are the DHCP clients that the ends of installs name, by host.
type doneBy map[string]event.Client

// Record implements event.Recorder.
func (d doneBy) Record(e event.Event) {
	if e.Kind == event.InstallDone {
		d[e.Host] = e.Client
	}
}

// TestWatch: the first word of an installed system ends an install whose installer cannot say that it is done; what
// firmware and iPXE say does only of a host that DHCP gives no boot file.
func TestWatch(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, interface: br0}}
profiles: {p: {os: coreos, kernel: k, config: c.ign, install_to: /dev/vda}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.9, profile: p}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.8, profile: p, local_boot: none}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := storetest.Memory()
	done := doneBy{}
	bus := event.NewBus(event.BusConfig{Now: time.Now, Recorders: []event.Recorder{done}})
	now := time.Now()
	installs, err := Open(t.Context(), Config{}, Deps{Store: store, Events: bus, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWatch()
	a, b := l.Host("a"), l.Host("b")
	for _, h := range []*lab.Host{a, b} {
		decision, err := installs.Boot(t.Context(), h, Request{Prepare: func() (Signals, error) { return NextBoot | SystemLease, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(installs.Received(t.Context(), h, decision), installs.ConfigRead(t.Context(), h, decision.Token)); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(10 * time.Minute)

	w.Record(event.Event{Kind: event.DHCPAck, Host: "a", Client: event.ClientOS}) // may be a renewal
	w.Record(event.Event{Kind: event.DHCPDiscover, Client: event.ClientOS})       // of no host
	if n := len(w.queue); n != 0 {
		t.Errorf("%d signals queued, want none", n)
	}
	w.Record(event.Event{Kind: event.DHCPDiscover, Host: "gone", Client: event.ClientOS})
	for _, client := range []event.Client{event.ClientPXE, event.ClientIPXE, event.ClientHTTP} {
		w.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", MAC: a.MACs[0], Client: client, Detail: "os"}) // the text decides nothing
	}
	w.Record(event.Event{Kind: event.DHCPDiscover, Host: "b", MAC: b.MACs[0], Client: event.ClientPXE})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- w.Run(ctx, installs, l.Host, slog.New(slog.DiscardHandler))
	}()
	netns.WaitFor(t, "the end of the install that firmware shows", func() bool { return installs.Status(b).State == Installed })
	if s := installs.Status(a); s.State != Installing {
		t.Errorf("firmware that is to fetch its script made the host %s", s.State)
	}
	w.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", Client: event.ClientOS, Detail: "PXE"})
	netns.WaitFor(t, "the end of the install that its system shows", func() bool { return installs.Status(a).State == Installed })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := (doneBy{"a": event.ClientOS, "b": ""}); !maps.Equal(done, want) {
		t.Errorf("the ends of the installs name the clients %v, want %v", done, want)
	}
	w.Record(event.Event{Kind: event.BackendUp, Host: "a"}) // shows nothing, as no state was lost
	w.SetLost(true)
	w.Record(event.Event{Kind: event.BackendUp, Host: "a"})
	if got := (<-w.queue); got != (signal{host: "a", runs: "answers health checks"}) || len(w.queue) != 0 {
		t.Errorf("after a loss, the queue has %+v and %d more", got, len(w.queue))
	}
	for range 3 * maxQueued { // a burst of requests blocks no caller
		w.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", Client: event.ClientOS})
	}
}
