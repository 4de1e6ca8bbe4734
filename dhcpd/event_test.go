package dhcpd

import (
	"testing"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestEventClient checks that DHCP events name the client by the values that the recorders compare with.
func TestEventClient(t *testing.T) {
	t.Parallel()
	for stage, want := range map[wire.Stage]event.Client{
		wire.StagePXE: event.ClientPXE, wire.StageHTTP: event.ClientHTTP, wire.StageIPXE: event.ClientIPXE, wire.StageOS: event.ClientOS,
	} {
		var got event.Event
		x := &exchange{}
		x.req.Stage = stage
		s := &Server{deps: Deps{Events: recorderFunc(func(e event.Event) { got = e })}}
		s.record(x, event.Event{Kind: event.DHCPDiscover, Detail: "os"})
		if got.Client != want {
			t.Errorf("client of stage %q is %q, want %q", stage, got.Client, want)
		}
	}
}

type recorderFunc func(event.Event)

func (f recorderFunc) Record(e event.Event) { f(e) }
