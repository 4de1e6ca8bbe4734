package dnsd

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// run starts a program and returns a function that ends it, which the end of the test does too.
func run(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

func write(t *testing.T, name, format string, args ...any) string {
	t.Helper()
	if err := os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A peer is a name server that holds a copy of z.test, which it transfers with testKey. start runs it and returns a function that stops it.
type peer struct {
	name, program string
	start         func(t *testing.T, dir string, port int, ours netip.AddrPort) (stop func())
}

var peers = []peer{
	{"BIND", "named", func(t *testing.T, dir string, port int, ours netip.AddrPort) func() {
		conf := write(t, filepath.Join(dir, "named.conf"), `options {
	directory %[1]q; listen-on port %[2]d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none;
	recursion no; dnssec-validation no; notify no; empty-zones-enable no; serial-query-rate 100; };
controls {};
logging { category default { null; }; };
key "ns2.test" { algorithm hmac-sha256; secret %[4]q; };
zone "z.test" { type secondary; file "z.db"; primaries { 127.0.0.1 port %[3]d key ns2.test; }; min-refresh-time 1; max-refresh-time 2; min-retry-time 1; max-retry-time 1; };
`, dir, port, ours.Port(), testSecret)
		return run(t, "named", "-f", "-n", "1", "-c", conf)
	}},
	{"Knot", "knotd", func(t *testing.T, dir string, port int, ours netip.AddrPort) func() {
		conf := write(t, filepath.Join(dir, "knot.conf"), `server:
    listen: 127.0.0.1@%[2]d
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    rundir: %[1]s
database:
    storage: %[1]s
log:
  - target: stderr
    any: error
key:
  - id: ns2.test
    algorithm: hmac-sha256
    secret: %[4]s
remote:
  - id: us
    address: 127.0.0.1@%[3]d
    key: ns2.test
acl:
  - id: us
    key: ns2.test
    action: notify
zone:
  - domain: z.test.
    storage: %[1]s
    master: us
    acl: us
    refresh-min-interval: 2
    refresh-max-interval: 2
    retry-min-interval: 2
    retry-max-interval: 2
`, dir, port, ours.Port(), testSecret)
		return run(t, "knotd", "-c", conf)
	}},
}

// signedLab is secondaryLab with testKey for everything, and perhaps a secondary that is told of changes.
func signedLab(last int, serial uint32, notify ...lab.Secondary) *Table {
	z := &lab.Zone{Origin: "z.test.", Derived: true}
	for i := range 300 {
		z.Records = append(z.Records, lab.Record{Name: fmt.Sprintf("h%d.z.test.", i), Type: "A", Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	z.Records = append(z.Records, lab.Record{Name: "last.z.test.", Type: "A", Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(last)})})
	l := &lab.Lab{Zones: []*lab.Zone{z}}
	l.DNS.Keys = []lab.TSIGKey{{Name: testKey, Algorithm: "hmac-sha256", SecretFile: "/plain"}}
	l.DNS.Transfer, l.DNS.Notify = []lab.Access{{Key: testKey}}, notify
	t, err := Compile(l, keyFiles)
	if err != nil {
		panic(err)
	}
	return t.WithSerials(map[string]uint32{"z.test.": serial})
}

// TestSecondariesWithTSIG: BIND and Knot take a zone whole, its changes after a NOTIFY, after a restart, and without any NOTIFY when
// their refresh timer says so, all of it signed.
func TestSecondariesWithTSIG(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			netns.Need(t, "root", p.program)
			t.Parallel()
			dir, port := t.TempDir(), netns.FreePort(t)
			_ = os.Chmod(dir, 0o755)
			addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
			us := lab.Secondary{Addr: addr, Key: testKey}
			var table atomic.Pointer[Table]
			table.Store(signedLab(1, 100, us))
			s := newServer(t, table.Load(), nil)
			s.deps.Table = table.Load
			ours := serve(t, s, "127.0.0.1")
			stop := p.start(t, dir, port, ours)
			holds := func(serial uint32, last int) {
				t.Helper()
				c := &dns.Client{Timeout: time.Second}
				netns.WaitFor(t, fmt.Sprintf("serial %d at %s", serial, p.name), func() bool {
					soa, _, err := c.Exchange(new(dns.Msg).SetQuestion("z.test.", dns.TypeSOA), addr.String())
					if err != nil || len(soa.Answer) != 1 || soa.Answer[0].(*dns.SOA).Serial != serial {
						return false
					}
					a, _, err := c.Exchange(new(dns.Msg).SetQuestion("last.z.test.", dns.TypeA), addr.String())
					return err == nil && len(a.Answer) == 1 && a.Answer[0].(*dns.A).A.String() == fmt.Sprintf("10.1.0.%d", last)
				})
			}
			holds(100, 1)
			before := testutil.ToFloat64(s.metrics.notified)
			table.Store(signedLab(2, 101, us))
			holds(101, 2)
			netns.WaitFor(t, "a signed reply to NOTIFY", func() bool { return testutil.ToFloat64(s.metrics.notified) > before })
			table.Store(signedLab(3, 102)) // nobody is told
			holds(102, 3)
			stop()
			table.Store(signedLab(4, 103))
			netns.WaitFor(t, "the table to be noticed", func() bool { return s.changes.sees(table.Load()) })
			p.start(t, dir, port, ours)
			holds(103, 4)
			if got := testutil.ToFloat64(s.metrics.incremental); got < 3 {
				t.Errorf("%v incremental transfers, want 3", got)
			}
			if got := testutil.ToFloat64(s.metrics.sent); got != 1 {
				t.Errorf("%v whole transfers, want the first alone", got)
			}
			if got := testutil.ToFloat64(s.metrics.refused) + testutil.ToFloat64(s.metrics.unauthentic); got != 0 {
				t.Errorf("%v requests were refused", got)
			}
		})
	}
}
