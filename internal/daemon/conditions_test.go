package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/tftpd"
)

// TestRefusedConditions: each machine with an error, a zone whose file has an error and one whose file is missing are named as the lab names them, with
// the whole problem.
func TestRefusedConditions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"files/x.cfg": "{{.Host.Vars.rack}}", "bad.zone": "@ NS ns\nns A 10.0.0\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(`
version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}
profiles: {p: {kernel: k, config: x.cfg}}
hosts:
  good: {mac: 52:54:00:00:00:01, profile: p, vars: {rack: r1}}
  bad: {mac: 52:54:00:00:00:02, profile: p}
  worse: {mac: 52:54:00:00:00:03, profile: p}
dns: {zones: {bad.example: {file: bad.zone}, gone.example: {file: gone.zone}}}
`), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range refusedConditions(s) {
		got = append(got, strings.ReplaceAll(c.Kind+" "+c.Name+" "+c.Problem, dir, ""))
	}
	if diff := cmp.Diff([]string{
		"machine bad refused: /files/x.cfg:1:8: profiles.p.config: for hosts bad, worse: {{.Host.Vars.rack}} is not set: want vars: {rack: …} for the host",
		"machine worse refused: /files/x.cfg:1:8: profiles.p.config: for hosts bad, worse: {{.Host.Vars.rack}} is not set: want vars: {rack: …} for the host",
		"zone bad.example. not served: /bad.zone:2:6: zone bad.example.: \"10.0.0\" is not an IPv4 address; the zone answers SERVFAIL",
		"zone gone.example. not served: /lab.yaml:10:46: dns.zones.gone.example.file: zone gone.example. answers SERVFAIL: open /gone.zone: no such file or directory",
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestUpstreamConditions: what clients get while no server is asked, or none answers, and what to do.
func TestPoolConditions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pool api.Pool
		want string
	}{
		{api.Pool{Size: 2, Free: 1, Leased: 1}, ""},
		{api.Pool{Size: 2, Leased: 2}, "full: new machines get no address"},
		{api.Pool{}, "no address of its range is free for machines without a reservation"},
	} {
		got := poolConditions([]api.Pool{c.pool})[0]
		if got.Problem != c.want || got.OK != (c.want == "") {
			t.Errorf("%+v: problem %q, ok %v, want %q", c.pool, got.Problem, got.OK, c.want)
		}
	}
}

func TestUpstreamConditions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule dnsd.ForwardRule
		want string
	}{
		{dnsd.ForwardRule{Domain: ".", Servers: 2, Answering: 1}, ""},
		{dnsd.ForwardRule{Domain: ".", Err: errors.New("names no server")}, "clients get REFUSED: there is no server to ask: set dns.forward to servers other than this appliance"},
		{dnsd.ForwardRule{Domain: "corp.example.", Servers: 1, Err: errors.New("ask 10.0.0.53:53: timeout")},
			"clients get SERVFAIL: ask 10.0.0.53:53: timeout: set dns.forward_zones.corp.example to servers that this machine may ask, or look at the firewall"},
	} {
		if c := upstreamConditions([]dnsd.ForwardRule{tt.rule})[0]; c.Problem != tt.want || c.OK != (tt.want == "") {
			t.Errorf("%+v: %+v, want %q", tt.rule, c, tt.want)
		}
	}
}

// TestConditionTimes: what is measured anew each time has a time too, that of the change.
func TestConditionTimes(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 11, 28, 12, minute, 0, 0, time.UTC) }
	var times conditionTimes
	for i, step := range []struct {
		ok   bool
		want time.Time
	}{{true, at(0)}, {true, at(0)}, {false, at(2)}, {false, at(2)}, {true, at(4)}} {
		got := times.date([]api.Condition{
			{Kind: api.ConditionPool, Name: "lan/p", OK: step.ok, Detail: fmt.Sprint(i, " leased")}, {Kind: api.ConditionDisk, Name: "lan/p", Since: at(9)},
		}, at(i))
		if !got[0].Since.Equal(step.want) || !got[1].Since.Equal(at(9)) {
			t.Errorf("step %d: %v and %v, want %v and its own", i, got[0].Since, got[1].Since, step.want)
		}
	}
	times.date(nil, at(5))
	if got := times.date([]api.Condition{{Kind: api.ConditionPool, Name: "lan/p", OK: true}}, at(6)); !got[0].Since.Equal(at(6)) {
		t.Errorf("a pool that was removed meanwhile: %v", got[0].Since)
	}
}

// TestMirrorConditions: a mirror of the lab of which no upstream answers is shown, one that the lab has no more is not.
func TestMirrorConditions(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	l := &lab.Lab{Mirrors: []*lab.Mirror{{Name: "debian"}, {Name: "fedora"}}}
	got := mirrorConditions(l, []mirror.Outage{{Mirror: "debian", Since: since, Err: "502 Bad Gateway"}, {Mirror: "gone", Since: since, Err: "timeout"}})
	want := []api.Condition{{Kind: api.ConditionMirror, Name: "debian", Since: since, Problem: "no upstream answers, so that only cached files are served: 502 Bad Gateway"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestTFTPConditions: a TFTP server that drops requests is shown, with the client that has the most transfers.
func TestTFTPConditions(t *testing.T) {
	t.Parallel()
	if got := tftpConditions(tftpd.Full{}, false); got != nil {
		t.Errorf("%+v, want none", got)
	}
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	want := []api.Condition{{Kind: api.ConditionTFTP, Name: "transfers", Since: since, Detail: "1024 at a time",
		Problem: "full: 312 requests were dropped; the client with the most transfers is 10.66.0.50, with 1019: look at that machine"}}
	got := tftpConditions(tftpd.Full{Since: since, Dropped: 312, Max: 1024, Client: netip.MustParseAddr("10.66.0.50"), Held: 1019}, true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestManyRogueServers: of many DHCP servers on an interface, which anybody can forge, a few are named.
func TestManyRogueServers(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var others []dhcpd.RogueServer
	for i := range 64 {
		others = append(others, dhcpd.RogueServer{Interface: "br0", Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), MAC: lab.MAC{2, 5: byte(i)}, Since: since.Add(-time.Duration(i) * time.Second)})
	}
	got := rogueConditions(append(others, dhcpd.RogueServer{Interface: "br1", Addr: netip.MustParseAddr("10.1.0.1"), Since: since}))
	if len(got) != 2 || !got[0].Since.Equal(since.Add(-63*time.Second)) {
		t.Fatalf("%+v", got)
	}
	if want := "64 servers: 10.0.0.1 (02:00:00:00:00:00), 10.0.0.2 (02:00:00:00:00:01), 10.0.0.3 (02:00:00:00:00:02), …"; got[0].Detail != want {
		t.Errorf("%q, want %q", got[0].Detail, want)
	}
	if want := "10.1.0.1 (00:00:00:00:00:00)"; got[1].Detail != want {
		t.Errorf("%q, want %q", got[1].Detail, want)
	}
}
