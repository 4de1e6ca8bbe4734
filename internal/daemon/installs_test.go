package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestInstallWatch: the first word of an installed system ends an install whose installer cannot say that it is done; what
// firmware and iPXE say does not.
func TestInstallWatch(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, interface: br0}}
profiles: {p: {os: coreos, kernel: k, config: c.ign, install_to: /dev/vda}}
hosts: {a: {mac: 52:54:00:00:00:01, ip: 10.0.0.9, profile: p}}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := storetest.Memory()
	bus := event.NewBus(event.BusConfig{Now: time.Now})
	now := time.Now()
	installs, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: store, Events: bus, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	clock, err := leases.OpenClock(t.Context(), store, leases.SystemHost())
	if err != nil {
		t.Fatal(err)
	}
	book, err := leases.Open(t.Context(), store, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{log: slog.New(slog.DiscardHandler), installWatch: newInstallWatch(), persistentState: &persistentState{store: store, clock: clock, book: book, installs: installs}}
	d.current.Store(&snapshot.Snapshot{Lab: l})
	h := l.Host("a")
	ticket, err := installs.Boot(t.Context(), h, install.Request{Prepare: func() (install.Signals, error) { return install.NextBoot | install.SystemLease, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(installs.Received(t.Context(), h, ticket), installs.ConfigRead(t.Context(), h, ticket.Token)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(10 * time.Minute)

	for _, client := range []event.Client{event.ClientPXE, event.ClientIPXE, event.ClientHTTP} {
		d.installWatch.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", Client: client, Detail: "os"}) // the text decides nothing
	}
	d.installWatch.Record(event.Event{Kind: event.DHCPAck, Host: "a", Client: event.ClientOS}) // may be a renewal
	d.installWatch.Record(event.Event{Kind: event.DHCPDiscover, Client: event.ClientOS})       // of no host
	if n := len(d.installWatch.queue); n != 0 {
		t.Errorf("%d signals queued, want none", n)
	}
	d.installWatch.Record(event.Event{Kind: event.DHCPDiscover, Host: "gone", Client: event.ClientOS})
	d.installWatch.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", Client: event.ClientOS, Detail: "PXE"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.installWatch.run(ctx, d) }()
	netns.WaitFor(t, "the end of the install", func() bool { return installs.Status(h).State == install.Installed })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	d.installWatch.Record(event.Event{Kind: event.BackendUp, Host: "a"}) // shows nothing, as no state was lost
	d.installWatch.lost.Store(true)
	d.installWatch.Record(event.Event{Kind: event.BackendUp, Host: "a"})
	if got := (<-d.installWatch.queue); got != (sign{host: "a", runs: "answers health checks"}) || len(d.installWatch.queue) != 0 {
		t.Errorf("after a loss, the queue has %+v and %d more", got, len(d.installWatch.queue))
	}
	for range 3 * maxQueued { // a burst of requests blocks no caller
		d.installWatch.Record(event.Event{Kind: event.DHCPDiscover, Host: "a", Client: event.ClientOS})
	}
}

// TestInstallNow: what a controller refuses leaves its host armed, and the error says so; a power cycle is an event.
func TestInstallNow(t *testing.T) {
	t.Parallel()
	broken := false
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && broken {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, `{"PowerState":"On"}`)
	}))
	defer controller.Close()
	l, err := load.Parse("lab.yaml", []byte(`version: 1
domain: d.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, interface: br0}}
profiles: {p: {os: coreos, kernel: k, config: c.ign, install_to: /dev/vda}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.9, profile: p, bmc: {redfish: "`+controller.URL+`/redfish/v1/Systems/1"}}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.10, profile: p}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	heard := &tape{}
	bus := event.NewBus(event.BusConfig{Now: time.Now, Recorders: []event.Recorder{heard}})
	installs, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: storetest.Memory(), Events: bus, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{persistentState: &persistentState{installs: installs}, bus: bus, loops: bootloop.New(time.Now)}
	d.current.Store(&snapshot.Snapshot{Lab: l})
	c := &adminBackend{Daemon: d}
	for _, tt := range []struct {
		host   string
		broken bool
		err    string
		state  install.State
		events []event.Kind
	}{
		{"a", false, "", install.Armed, []event.Kind{event.InstallArmed, event.PowerCycled}},
		{"a", true, "a is armed, but was not power-cycled: controller " + controller.URL + "/redfish/v1/Systems/1: set the next boot to Pxe: 409 Conflict", install.Armed,
			[]event.Kind{event.InstallArmed, event.PowerCycleFailed}},
		{"b", false, "b is no virtual machine and has no bmc, so nothing can power-cycle it", install.Armed, nil},
		{"c", false, `no host "c"`, "", nil},
	} {
		broken, heard.kinds = tt.broken, nil
		a, err := c.Install(t.Context(), tt.host, api.CycleNow)
		if tt.err == "" && (err != nil || !a.Cycled) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %+v, %v; want %q", tt.host, a, err, tt.err)
		}
		if h := l.Host(tt.host); h != nil && (switchOf(h) == "") != strings.Contains(tt.err, "nothing can power-cycle it") {
			t.Errorf("%s: power %q, and install now: %q", tt.host, switchOf(h), tt.err)
		}
		if h := l.Host(tt.host); h != nil && installs.Status(h).State != tt.state {
			t.Errorf("%s is %s", tt.host, installs.Status(h).State)
		}
		if diff := cmp.Diff(tt.events, heard.kinds); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", tt.host, diff)
		}
	}
}

// A tape is a recorder that keeps the kinds it hears.
type tape struct{ kinds []event.Kind }

func (t *tape) Record(e event.Event) { t.kinds = append(t.kinds, e.Kind) }
