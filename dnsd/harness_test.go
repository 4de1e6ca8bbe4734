package dnsd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { netns.Main(m) }

// zoneOfLines returns a static zone whose lines stand in lab.yaml from line 10 on.
func zoneOfLines(origin string, lines ...string) *lab.Zone {
	z := &lab.Zone{Origin: origin, Pos: lab.Pos{File: "lab.yaml", Line: 9, Column: 5}}
	for i, text := range lines {
		z.Lines = append(z.Lines, lab.Line{Pos: lab.Pos{File: "lab.yaml", Line: 10 + i, Column: 9}, Text: text})
	}
	return z
}

// derived returns a derived zone of records written "NAME TYPE DATA".
func derived(origin string, records ...string) *lab.Zone {
	z := &lab.Zone{Origin: origin, Derived: true}
	for _, text := range records {
		f := strings.Fields(text)
		r := lab.Record{Name: f[0], Type: f[1], Source: "host " + strings.SplitN(f[0], ".", 2)[0]}
		switch f[1] {
		case "A", "AAAA":
			r.Addr = netip.MustParseAddr(f[2])
		case "SRV":
			_, _ = fmt.Sscan(strings.Join(f[2:5], " "), &r.Priority, &r.Weight, &r.Port)
			r.Target = f[5]
		default:
			r.Target = f[2]
		}
		z.Records = append(z.Records, r)
	}
	return z
}

func compile(t testing.TB, l *lab.Lab) *Table {
	t.Helper()
	table, err := Compile(l, nil)
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return table
}

// newServer returns a server of a table for tests that need no socket.
func newServer(t testing.TB, table *Table, leases Leases) *Server {
	t.Helper()
	return newServerWithTimeout(t, table, leases, 20*time.Second) // no timer interferes with a test that is not about timers
}

// newServerWithTimeout is newServer that gives another server so long for an answer.
func newServerWithTimeout(t testing.TB, table *Table, leases Leases, timeout time.Duration) *Server {
	t.Helper()
	s, err := New(Config{ForwardTimeout: timeout}, Deps{
		Table: func() *Table { return table }, Leases: leases, Now: time.Now,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exchange hands a message to the server as a reader would, and the forwarder's work too.
func exchange(t testing.TB, s *Server, m *dns.Msg, from string) *dns.Msg {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r := &request{from: netip.MustParseAddr(from)}
	r.w.b = append(make([]byte, 0, udpBuffer), packed...)
	switch s.handle(r) {
	case dropped:
		return nil
	case pending:
		r = r.clone()
		s.answerForwarded(context.Background(), r)
	}
	var reply dns.Msg
	if err := reply.Unpack(r.w.b); err != nil {
		t.Fatalf("unpack the reply: %v\n%x", err, r.w.b)
	}
	return &reply
}

// lookup returns the reply to "NAME TYPE", asked with RD from an address.
func lookup(t testing.TB, s *Server, question, from string) *dns.Msg {
	t.Helper()
	owner, qtype, _ := strings.Cut(question, " ")
	return exchange(t, s, new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype]), from)
}

// A dialogue is a question, "NAME TYPE", and the reply that show must make of it.
type dialogue struct{ question, want string }

// wantAnswers asks one question after the other, from an address.
func wantAnswers(t testing.TB, s *Server, from string, all []dialogue) {
	t.Helper()
	for _, tt := range all {
		if diff := cmp.Diff(tt.want, show(lookup(t, s, tt.question, from))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.question, diff)
		}
	}
}

// show returns a reply as text: code, flags, and the records of each section without TTL.
func show(m *dns.Msg) string {
	if m == nil {
		return "none"
	}
	var b strings.Builder
	b.WriteString(dns.RcodeToString[m.Rcode])
	for _, f := range []struct {
		set  bool
		name string
	}{{m.Authoritative, "aa"}, {m.Truncated, "tc"}, {m.RecursionAvailable, "ra"}} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
	for i, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range rrs {
			if rr.Header().Rrtype == dns.TypeOPT {
				continue
			}
			fields := strings.Fields(rr.String())
			if rr.Header().Rrtype == dns.TypeSOA {
				fields = fields[:5] // serials follow from the content
			}
			b.WriteString("\n" + []string{"an ", "ns ", "ar "}[i] + strings.Join(slices.Concat(fields[:1], fields[3:]), " "))
		}
	}
	return b.String()
}

// leaseBook is a book of leases.
type leaseBook []Lease

// clients is a book of clients that the lab does not know, by name.
func clients(names map[string]string) (all leaseBook) {
	for name, addr := range names {
		all = append(all, Lease{Addr: netip.MustParseAddr(addr), Hostname: name})
	}
	return all
}

func (l leaseBook) find(is func(Lease) bool) (Lease, bool) {
	if i := slices.IndexFunc(l, is); i >= 0 {
		return l[i], true
	}
	return Lease{}, false
}

func (l leaseBook) ByName(label string) (Lease, bool) {
	return l.find(func(x Lease) bool { return x.Hostname == label })
}

func (l leaseBook) ByMAC(m lab.MAC) (Lease, bool) {
	return l.find(func(x Lease) bool { return x.MAC == m })
}

func (l leaseBook) ByAddr(addr netip.Addr) (Lease, bool) {
	return l.find(func(x Lease) bool { return x.Addr == addr })
}

// all calls yield for every address.
func (l leaseBook) all(yield func(netip.Addr) bool) {
	for _, x := range l {
		if !yield(x.Addr) {
			return
		}
	}
}

// serve runs a server on sockets of the given host and returns their address. It ends with the test.
func serve(t testing.TB, s *Server, host string) netip.AddrPort {
	t.Helper()
	return serveAt(t, s, net.JoinHostPort(host, "0"))
}

// listenBoth listens at an address in TCP and UDP. Where the port is 0, both have the same free one: a port that is free in TCP may be
// another test's in UDP. netns.FreePort is for programs, which open their sockets later; here nobody can take the port in between.
func listenBoth(t testing.TB, addr string) (*net.TCPListener, *net.UDPConn) {
	t.Helper()
	for try := 0; ; try++ {
		tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(tcp.Addr().String())))
		if err == nil {
			return tcp, udp
		}
		_ = tcp.Close()
		if try == 20 || !strings.HasSuffix(addr, ":0") {
			t.Fatal(err)
		}
	}
}

// serveAt is serve with a port.
func serveAt(t testing.TB, s *Server, addr string) netip.AddrPort {
	t.Helper()
	tcp, udp := listenBoth(t, addr)
	ap := netip.MustParseAddrPort(tcp.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Serve(ctx, []*net.UDPConn{udp}, []*net.TCPListener{tcp}) }()
	go func() { done <- s.ServeChanges(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
		}
		_, _ = udp.Close(), tcp.Close()
	})
	return ap
}

var errNoFile = errors.New("no such file")

// dnsmasq returns a command that answers DNS, and nothing else, on a port of the loopback.
func dnsmasq(ctx context.Context, port int, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "dnsmasq", append([]string{"--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--user=root", "--pid-file=", "--bind-interfaces", "--listen-address=127.0.0.1", fmt.Sprintf("--port=%d", port)}, args...)...)
}

// waitFor asks until the server answers.
func waitFor(t testing.TB, addr string) {
	t.Helper()
	c := &dns.Client{Timeout: time.Second}
	netns.WaitFor(t, "an answer from "+addr, func() bool {
		_, _, err := c.Exchange(new(dns.Msg).SetQuestion("version.example.", dns.TypeA), addr)
		return err == nil
	})
}
