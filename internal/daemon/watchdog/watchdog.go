package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/tftpd"
)

// A Test asks one server for an answer, as a client does.
type Test struct {
	Server string
	Ask    func(context.Context) error // an error means that no answer came until the context ended; it names what was asked
}

// A Watchdog reports to the service manager that all servers answer, for as long as they do. Then the manager restarts the daemon.
//
// No test touches a disk, a hypervisor, an upstream or a controller: a slow one is no reason for a restart, which would only
// interrupt the others. A server that ended with an error, an interface that is gone and an address that was lost are not
// tested: a restart would end connections each time, and cure none of them; bootlab status shows them.
type Watchdog struct {
	tests []Test
	every time.Duration // between two tests, and the time that an answer may take
	alive func()        // passes it on
	log   *slog.Logger
}

// missedTests is how many tests in a row a server misses before the watchdog stops. The manager waits for four.
const missedTests = 2

// New returns the watchdog that the service manager wants (sd_watchdog_enabled(3)), or nil: it wants none.
func New(tests []Test, log *slog.Logger) *Watchdog {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within == 0 {
		return nil
	}
	return &Watchdog{
		tests: tests, every: within / (2 * missedTests), log: log,
		alive: func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) },
	}
}

// Run tests until ctx ends.
func (w *Watchdog) Run(ctx context.Context) error {
	missed := make([]int, len(w.tests))
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		errs := w.test(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if w.evaluate(missed, errs) {
			w.alive()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// test asks all servers at once, and returns the error of each.
func (w *Watchdog) test(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, w.every)
	defer cancel()
	errs := make([]error, len(w.tests))
	var wg sync.WaitGroup
	for i, t := range w.tests {
		wg.Go(func() { errs[i] = t.Ask(ctx) })
	}
	wg.Wait()
	return errs
}

// evaluate counts which servers missed how many tests, logs when one has missed too many, and reports whether none has.
func (w *Watchdog) evaluate(missed []int, errs []error) bool {
	well := true
	for i, err := range errs {
		server := w.tests[i].Server
		switch {
		case err == nil && missed[i] >= missedTests:
			w.log.Info("server passes its self-test again", "server", server)
			missed[i] = 0
		case err == nil:
			missed[i] = 0
		default:
			if missed[i]++; missed[i] == missedTests {
				w.log.Error("server failed its self-test: the service manager restarts the daemon", "server", server, "err", err)
			}
		}
		well = well && missed[i] < missedTests
	}
	return well
}

// Servers are what the tests of servers ask of the daemon. All fields are required.
type Servers struct {
	Sockets  func(server string) []string // where a server listens: addresses with ports, and paths
	Serving  func(server string) bool     // false: it has ended
	Counters prometheus.Gatherer          // those of a server begin with bootlab_ and its name
}

// OnSockets returns a test that asks on each socket of a server whose address this machine has.
func (s Servers) OnSockets(server string, ask func(context.Context, string) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for _, socket := range s.Sockets(server) {
			if addr, ok := reachable(socket); ok {
				if err := ask(ctx, addr); err != nil {
					errs = append(errs, fmt.Errorf("no answer from %s: %w", addr, err))
				}
			}
		}
		err := s.UnlessEnded(server, errors.Join(errs...))
		if err != nil && s.progresses(server) {
			return nil
		}
		return err
	}
}

// look is how long a server that did not answer is watched.
const look = 200 * time.Millisecond

// progresses reports whether a server counts anything right now: then it works, on so much that there was no room for the
// question. A flood must not restart the daemon.
func (s Servers) progresses(server string) bool {
	result := make(chan bool, 1)
	go func() { // it may hang as the server does
		before := s.counted(server)
		time.Sleep(look)
		result <- s.counted(server) > before
	}()
	select {
	case p := <-result:
		return p
	case <-time.After(10 * look):
		return false
	}
}

// counted returns the sum of the counters of a server.
func (s Servers) counted(server string) (sum float64) {
	families, _ := s.Counters.Gather() // what an error leaves out is not counted
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "bootlab_"+server+"_") {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() // zero if it is none
		}
	}
	return sum
}

// UnlessEnded returns err, unless the server has ended.
func (s Servers) UnlessEnded(server string, err error) error {
	if s.Serving(server) {
		return err
	}
	return nil
}

// reachable returns where a socket of this machine is reached from this machine; not if it has lost the address.
func reachable(socket string) (string, bool) {
	ap, err := netip.ParseAddrPort(socket)
	if err != nil {
		return "", false // a Unix socket
	}
	if ap.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String(), true
	}
	own, _ := links.Addrs() // without an answer only loopback counts
	return socket, own.Serve(ap.Addr())
}

// resend is how long a datagram's answer may take before it is sent again: a flood fills the socket's buffer.
const resend = 500 * time.Millisecond

// askDatagram sends a datagram until an answer comes that is for it.
func askDatagram(ctx context.Context, addr string, question []byte, answers func([]byte) bool) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 1500)
	for ctx.Err() == nil {
		_, _ = conn.Write(question)
		_ = conn.SetReadDeadline(time.Now().Add(resend))
		n, err := conn.Read(answer)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil // closed: bootlab status says so
		}
		if err == nil && answers(answer[:n]) {
			return nil
		}
	}
	return ctx.Err()
}

// AskTFTP asks for a file that does not exist.
func AskTFTP(ctx context.Context, addr string) error {
	return askDatagram(ctx, addr, []byte(tftpd.SelfTest), func(b []byte) bool { return bytes.HasPrefix(b, []byte{0, 5}) })
}

// AskDNS asks for a name of its own zones, without recursion. Any answer will do.
func AskDNS(ctx context.Context, addr string) error {
	id := uint16(time.Now().UnixNano())
	name := dnsmessage.MustNewName("localhost.")
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	b, err := question.Pack()
	if err != nil {
		return err
	}
	return askDatagram(ctx, addr, b, func(answer []byte) bool { return len(answer) > 2 && answer[0] == b[0] && answer[1] == b[1] })
}

// AskHTTP gets a page that needs nothing. That the server closes the connection, as it does to many under a flood, is an answer.
func AskHTTP(ctx context.Context, network, addr string) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	host := addr
	if network == "unix" {
		host = "localhost"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+httpd.SelfTestPath, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	if ctx.Err() == nil {
		return nil
	}
	return err
}
