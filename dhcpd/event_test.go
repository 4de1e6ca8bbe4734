package dhcpd

import (
	"testing"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestAskers: events call those who speak as the rest of the house reads them.
func TestAskers(t *testing.T) {
	t.Parallel()
	for stage, want := range map[wire.Stage]string{
		wire.StagePXE: event.AskerPXE, wire.StageHTTP: event.AskerHTTP, wire.StageIPXE: event.AskerIPXE, wire.StageOS: event.AskerOS,
	} {
		x := &exchange{}
		x.req.Stage = stage
		for _, detail := range []string{x.asker(), x.told(&wire.Reply{}), x.told(&wire.Reply{BootFile: "f"})} {
			if got := (event.Event{Detail: detail}).Asker(); got != want {
				t.Errorf("%q is told by %q, want %q", detail, got, want)
			}
		}
	}
}
