package logs_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/logs"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		event event.Event
		want  string
	}{
		{"everything", event.Event{At: at, Gen: 3, Kind: event.TFTPFailed, MAC: lab.MAC{0x52, 0x54, 0, 0, 2, 1}, Addr: netip.MustParseAddr("192.168.16.21"),
			Host: "master-0", Detail: "ipxe.efi", Err: "the client stopped answering", Reason: event.Stalled, Bytes: 512, Size: 1024, Dur: 2 * time.Second},
			"time=2026-11-21T10:00:00.000Z level=WARN msg=tftp_failed host=master-0 mac=52:54:00:00:02:01 addr=192.168.16.21 " +
				"detail=ipxe.efi bytes=512 size=1024 dur=2s reason=stalled err=\"the client stopped answering\" gen=3\n"},
		{"of a backend", event.Event{At: at, Kind: event.BackendDown, Host: "master-0", Balancer: "api", Backend: "10.0.0.5:6443", Err: "refused"},
			"time=2026-11-21T10:00:00.000Z level=WARN msg=backend_down host=master-0 balancer=api backend=10.0.0.5:6443 err=refused gen=0\n"},
		{"of a mirror", event.Event{At: at, Kind: event.MirrorBypassed, Mirror: "debian", Detail: "pool/a.deb"},
			"time=2026-11-21T10:00:00.000Z level=WARN msg=mirror_bypassed mirror=debian detail=pool/a.deb gen=0\n"},
		{"of a network", event.Event{At: at, Kind: event.DHCPAck, Host: "master-0", Network: "lan", Detail: "os"},
			"time=2026-11-21T10:00:00.000Z level=INFO msg=dhcp_ack host=master-0 network=lan detail=os gen=0\n"},
		{"next to nothing", event.Event{At: at, Kind: event.LabApplied}, "time=2026-11-21T10:00:00.000Z level=INFO msg=lab_applied gen=0\n"},
		{"a summary", event.Event{At: at, Kind: event.FileMissing, Err: "file not found", More: 312, Over: 10 * time.Second},
			"time=2026-11-21T10:00:00.000Z level=WARN msg=file_missing err=\"file not found\" more=312 over=10s gen=0\n"},
		{"below the level", event.Event{At: at, Kind: event.DHCPDiscover}, ""},
		{"a line in a line", event.Event{At: at, Kind: event.FileMissing, Detail: "a\nlevel=ERROR msg=forged"},
			"time=2026-11-21T10:00:00.000Z level=WARN msg=file_missing detail=\"a\\nlevel=ERROR msg=forged\" gen=0\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			logs.New(slog.New(slog.NewTextHandler(&got, nil))).Record(tt.event)
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoggersAttributesStay(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	logs.New(slog.New(slog.NewTextHandler(&got, nil)).With("server", "bus")).Record(event.Event{Kind: event.DaemonReady})
	if want := "level=INFO msg=daemon_ready server=bus gen=0\n"; got.String() != want {
		t.Errorf("log = %q, want %q", got.String(), want)
	}
}

func BenchmarkBelowLevel(b *testing.B) {
	r := logs.New(slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)))
	b.ReportAllocs()
	for b.Loop() {
		r.Record(event.Event{Kind: event.DHCPDiscover, Host: "master-0"})
	}
}
