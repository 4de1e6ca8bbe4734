package dhcpd

import (
	"testing"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestEventClient checks that DHCP events name the client by the values that the recorders compare with.
func TestEventClient(t *testing.T) {
	t.Parallel()
	for kind, want := range map[wire.ClientKind]event.Client{
		wire.ClientPXE: event.ClientPXE, wire.ClientHTTP: event.ClientHTTP, wire.ClientIPXE: event.ClientIPXE, wire.ClientOS: event.ClientOS,
	} {
		var got event.Event
		x := &exchange{}
		x.req.Client = kind
		s := &Server{deps: Deps{Events: recorderFunc(func(e event.Event) { got = e })}}
		s.record(x, event.Event{Kind: event.DHCPDiscover, Detail: "os"})
		if got.Client != want {
			t.Errorf("client of kind %q is %q, want %q", kind, got.Client, want)
		}
	}
}

type recorderFunc func(event.Event)

func (f recorderFunc) Record(e event.Event) { f(e) }
