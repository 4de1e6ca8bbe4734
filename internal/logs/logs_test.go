package logs_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/lab"
	"bootlab/internal/logs"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		event event.Event
		want  string
	}{
		{"whole", event.Event{
			Kind: event.FileServed, Host: "worker-0", MAC: lab.MAC{0x52, 0x54, 0, 0, 2, 4}, Addr: netip.MustParseAddr("10.0.0.2"),
			Detail: "images/kernel", Bytes: 12, Dur: time.Second, Gen: 3,
		}, "level=INFO msg=file_served host=worker-0 mac=52:54:00:00:02:04 addr=10.0.0.2 detail=images/kernel bytes=12 dur=1s gen=3\n"},
		{"what is not known is left out", event.Event{Kind: event.LabRefused, Err: "no such host"}, "level=ERROR msg=lab_refused err=\"no such host\"\n"},
		{"below the level", event.Event{Kind: event.DHCPDiscover}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			noTime := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}
			logs.New(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: noTime}))).Record(tt.event)
			if b.String() != tt.want {
				t.Errorf("logged %q, want %q", b.String(), tt.want)
			}
		})
	}
}
