package event_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// lines returns the events of a recorder as text, each kind of summary with its count.
func (t *tape) lines() (lines []string) {
	for _, e := range t.events {
		line := fmt.Sprintf("%s %s %s", e.Kind, e.Host, e.Detail)
		if e.More > 0 {
			line = fmt.Sprintf("%s: %d more in %v", line, e.More, e.Over)
		}
		lines = append(lines, line)
	}
	return lines
}

// A flooded bus has an event recorder and a counter.
func floodedBus() (bus *event.Bus, recorded, counted *tape) {
	recorded, counted = &tape{}, &tape{}
	bus = event.NewBus(event.BusConfig{Now: time.Now, Recorders: []event.Recorder{recorded}, Counters: []event.Recorder{counted}})
	return bus, recorded, counted
}

// TestSummaries: of what a stranger causes, the first event is recorded at once and the others as a summary; counters get all of them.
func TestSummaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, recorded, counted := floodedBus()
		stranger := netip.MustParseAddr("192.0.2.7")
		for i := range 313 {
			bus.Record(event.Event{Kind: event.FileMissing, Addr: stranger, Detail: fmt.Sprint("files/nosuch", i), Err: "file not found"})
		}
		bus.Record(event.Event{Kind: event.LabApplied, Detail: "beside it"})
		time.Sleep(time.Hour)
		synctest.Wait()
		bus.Record(event.Event{Kind: event.FileMissing, Addr: stranger, Detail: "later", Err: "file not found"})
		want := []string{"file_missing  files/nosuch0", "lab_applied  beside it", "file_missing  files/nosuch312: 312 more in 10s", "file_missing  later"}
		if diff := cmp.Diff(want, recorded.lines()); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
		if n := len(counted.events); n != 315 {
			t.Errorf("%d events counted, want all 315 and no summary", n)
		}
		for i, e := range recorded.events {
			if e.Seq != uint64(i+1) {
				t.Errorf("event %d has the number %d", i+1, e.Seq)
			}
		}
	})
}

// TestFloodHidesNoMachine: whatever strangers send, with whatever addresses, MACs and reasons, each event of the lab's own machines is recorded.
func TestFloodHidesNoMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, recorded, _ := floodedBus()
		flood := func(i int) []event.Event {
			addr := netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)})
			mac := lab.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
			return []event.Event{
				{Kind: event.FileMissing, Addr: addr, Err: "file not found"},
				{Kind: event.TFTPRefused, Addr: addr, Err: fmt.Sprint("mode ", i)},
				{Kind: event.DHCPRefused, MAC: mac, Client: event.ClientPXE, Err: "no reservation"},
				{Kind: event.ConfigRefused, MAC: lab.MAC{2}, Host: "master-0", Claimed: true, Addr: addr, Err: fmt.Sprint(i)},
			}
		}
		own := []event.Event{
			{Kind: event.DHCPAck, Host: "master-0", MAC: lab.MAC{2}, Client: event.ClientPXE},
			{Kind: event.TFTPServed, Host: "master-0", MAC: lab.MAC{2}, Addr: netip.MustParseAddr("10.0.0.1"), Detail: "ipxe.efi"},
			{Kind: event.TFTPRefused, Host: "master-0", MAC: lab.MAC{2}, Addr: netip.MustParseAddr("10.0.0.1"), Detail: "a", Err: "no such file"},
			{Kind: event.ConfigRefused, Host: "master-0", MAC: lab.MAC{2}, Addr: netip.MustParseAddr("10.0.0.1"), Err: "wrong token"},
			{Kind: event.InstallStarted, Host: "master-0"},
		}
		for i := range 20_000 {
			for _, e := range flood(i) {
				bus.Record(e)
			}
			if i%4000 == 3999 {
				bus.Record(own[i/4000])
			}
		}
		var got []string
		strangers := 0
		for _, e := range recorded.events {
			if e.Host == "master-0" && !e.Claimed {
				got = append(got, e.Kind.String())
			} else {
				strangers++
			}
		}
		if diff := cmp.Diff([]string{"dhcp_ack", "tftp_served", "tftp_refused", "config_refused", "install_started"}, got); diff != "" {
			t.Errorf("the machine's events (-want +got):\n%s", diff)
		}
		if strangers > 150 {
			t.Errorf("%d of 80000 events of strangers are recorded one by one", strangers)
		}
		bus.Flush()
		bus.Flush()
		more := strangers
		for _, e := range recorded.events {
			more += e.More
		}
		if more != 80_000 {
			t.Errorf("%d events of strangers are recorded or in summaries, want 80000", more)
		}
	})
}

// TestClaims: of claims of one address, by however many MACs, the first is recorded at once and the others as one summary; each address
// has its own.
func TestClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, recorded, counted := floodedBus()
		for i := range 300 {
			mac := lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}
			for addr, e := range map[string]event.Event{
				"10.0.0.10": {Kind: event.VIPInUse, Err: mac.String() + " uses it"},
				"10.0.0.11": {Kind: event.VIPConflict, Err: mac.String() + " uses it"},
				"10.0.0.99": {Kind: event.DHCPPoolConflict, MAC: mac, Host: "by its MAC", Err: mac.String() + " uses 10.0.0.99 without a lease"},
				"10.0.0.21": {Kind: event.AddressConflict, MAC: lab.MAC{2}, Host: "master-0", Claimed: true, Err: "by " + mac.String()},
			} {
				e.Addr = netip.MustParseAddr(addr)
				bus.Record(e)
			}
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if len(recorded.events) != 8 || len(counted.events) != 1200 {
			t.Fatalf("%d events are recorded and %d counted, want 8 and 1200:\n%q", len(recorded.events), len(counted.events), recorded.lines())
		}
		for i, e := range recorded.events {
			if want := i / 4 * 299; e.More != want {
				t.Errorf("event %d: %d more, want %d", i, e.More, want)
			}
		}
	})
}

// TestHostsRefusals: a machine of the lab shows the names that it tries, and a summary of the rest.
func TestHostsRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus, recorded, _ := floodedBus()
		for i := range 100 {
			bus.Record(event.Event{Kind: event.TFTPRefused, Host: "master-0", Addr: netip.MustParseAddr("10.0.0.1"), Detail: fmt.Sprint(i), Err: "no such file"})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(recorded.events); n != 13 || recorded.events[12].More != 88 {
			t.Errorf("%d events: %q, want 12 and a summary of 88", n, recorded.lines())
		}
	})
}

func BenchmarkRefusedByTheThousand(b *testing.B) {
	bus, _, _ := floodedBus()
	e := event.Event{Kind: event.FileMissing, Addr: netip.MustParseAddr("192.0.2.7"), Detail: "files/nosuch", Err: "file not found"}
	b.ReportAllocs()
	for b.Loop() {
		bus.Record(e)
	}
}
