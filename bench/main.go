// Command bench measures bootlab beside the daemons that it replaces, in one run, in a network namespace of its own.
//
//	bin/bench                          # footprint and reload, as tables
//	bin/bench -only dhcp               # DHCP beside its peers, which takes a quarter of an hour
//	bin/bench -only dhcp -quick -retakes 0 # a few minutes, to see that it works; the numbers mean nothing
//	bin/bench -only storm              # 500 machines boot at once, beside dnsmasq and nginx
//	bin/bench -only dhcp -tests loop,growth -candidates bootlab,kea -rounds 5
//	bin/bench -only http               # HTTP beside nginx and plain net/http, which takes some five minutes
//	bin/bench -only dns                # DNS beside Knot and dnsmasq, which takes some five minutes
//	bin/bench -only lb                 # the load balancer beside HAProxy and nginx, which takes some ten minutes
//	bin/bench -only tftp               # TFTP beside its peers, which takes some ten minutes
//
// It needs root, bin/bootlab, and dnsmasq, haproxy, nginx, knot, bind9, tftpd-hpa, atftpd, Kea and ISC dhcpd from Debian. "Ready" is when every port
// answers, polled every half millisecond; memory is the resident set of all processes once they are ready and idle.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/test/support/bootload"
	"github.com/bootlab/bootlab/test/support/netns"
)

func main() {
	b := &bench{}
	only := flag.String("only", "footprint,reload", "measure only `these`, with commas between: footprint, reload, dhcp, dns, tftp, http, lb, storm")
	flag.IntVar(&b.rounds, "rounds", 0, "rounds of each measurement, of which the median is shown with the range; 0: 5, of dhcp, dns, tftp, http, lb and storm 3")
	flag.StringVar(&b.binary, "bootlab", "bin/bootlab", "the daemon")
	flag.IntVar(&b.retakes, "retakes", 3, "dhcp, dns, tftp, http, lb: how often a sample is taken again because other processes used the machine meanwhile")
	flag.BoolVar(&b.quick, "quick", false, "dhcp, dns, tftp, http, lb: one short round, to see that it works")
	flag.BoolVar(&b.json, "json", false, "dhcp, tftp: write all samples as JSON")
	flag.BoolVar(&b.probe, "probe", false, "dhcp: other servers probe an address before they offer it, which is their default and slow")
	flag.BoolVar(&b.logLeases, "log-leases", false, "dhcp: every candidate logs each lease, Kea with the four lines that it ships with; by default all log errors only")
	flag.BoolVar(&b.keep, "keep", false, "dhcp, tftp: keep the files of servers and perfdhcp")
	flag.Var((*names)(&b.only), "candidates", "dhcp, tftp: only `these`, with commas between: bootlab, kea, isc, dnsmasq; and fake, which answers "+
		"without state, for the most that can be measured; of tftp: bootlab, dnsmasq, hpa, atftpd; of http: bootlab, nginx, net/http, template; of dns: "+
		"bootlab, knot, dnsmasq, named; of lb: bootlab, haproxy, haproxy-splice, nginx; of storm: bootlab, bootlab-10k, dnsmasq+nginx")
	flag.Var((*names)(&b.tests), "tests", "dhcp, tftp: only `these`, with commas between: loop, written, growth, perfdhcp, mixed, avalanche, fill; of "+
		"tftp: lockstep, window, far, storm, loss; of http: bulk, document, small, connections; of dns: mix, steady, cached, large; of lb: lb-tcp, lb-new, "+
		"lb-bulk, lb-http, lb-http-new, lb-idle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := b.check()
	switch {
	case err != nil:
	case flag.Arg(0) == loadCommand:
		err = runLoader(ctx, os.Stdin, os.Stdout)
	case flag.Arg(0) == bootCommand:
		err = bootload.Serve(ctx, os.Stdin, os.Stdout)
	case flag.Arg(0) == fakeCommand:
		err = runFake(ctx)
	case flag.Arg(0) == tftpLoadCommand:
		err = runTFTPLoad(ctx, os.Stdin, os.Stdout)
	case flag.Arg(0) == httpLoadCommand:
		err = runHTTPLoad(ctx, os.Stdin, os.Stdout)
	case flag.Arg(0) == dnsLoadCommand:
		err = runDNSLoad(ctx, os.Stdin, os.Stdout)
	case flag.Arg(0) == upstreamCommand:
		err = runDNSUpstream(ctx)
	case flag.Arg(0) == lbBackendCommand:
		err = runLBBackends(ctx)
	case flag.Arg(0) == plainCommand:
		err = runPlain(ctx)
	case flag.Arg(0) == wireCommand:
		err = runWire(ctx, flag.Args()[1:])
	default:
		err = run(ctx, b, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// names are the values of a flag, with commas between.
type names []string

// String implements flag.Value.
func (n *names) String() string { return strings.Join(*n, ",") }

// Set implements flag.Value.
func (n *names) Set(s string) error {
	*n = strings.Split(s, ",")
	return nil
}

// A measurement is one of the tables.
type measurement struct {
	name string
	run  func(context.Context, *bench) error
}

func measurements() []measurement {
	return []measurement{{"footprint", footprint}, {"reload", reload}, {"dhcp", dhcp}, {"tftp", tftp}, {"http", web}, {"dns", domainNames}, {"lb", balancers}, {"storm", bootStorm}}
}

func run(ctx context.Context, b *bench, only string) error {
	if !netns.Inside() {
		code, err := netns.Isolate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	}
	var err error
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bootlab-bench-"); err != nil {
		return err
	}
	if b.keep {
		fmt.Fprintln(os.Stderr, "files are kept in", b.dir)
	} else {
		defer os.RemoveAll(b.dir)
	}
	if err := os.Chmod(b.dir, 0o755); err != nil { // the daemon changes its user
		return err
	}
	if err := network(ctx); err != nil {
		return err
	}
	for _, m := range measurements() {
		if !slices.Contains(strings.Split(only, ","), m.name) {
			continue
		}
		if err := m.run(ctx, b.of(m)); err != nil {
			return err
		}
	}
	return nil
}

// A bench is what every measurement works with.
type bench struct {
	dir    string // scratch
	binary string
	rounds int

	// of dhcp and tftp
	retakes                             int // of a sample that other processes disturbed
	quick, json, probe, logLeases, keep bool
	only, tests                         []string // none: all
	started                             int      // candidates, in this measurement
}

// check finds misspelled tests before anything is started.
func (b *bench) check() error {
	known := slices.Concat(dhcpTestNames(), testNames(tftpTests()), testNames(httpTests()), testNames(dnsTests()), testNames(lbTests()))
	for _, t := range b.tests {
		if !slices.Contains(known, t) {
			return fmt.Errorf("there is no test %q", t)
		}
	}
	return nil
}

// wants reports whether a test is asked for.
func (b *bench) wants(test string) bool { return len(b.tests) == 0 || slices.Contains(b.tests, test) }

// of returns b with the default rounds of a measurement, unless -rounds sets them.
func (b bench) of(m measurement) *bench {
	switch {
	case b.rounds > 0:
	case b.quick:
		b.rounds = 1
	case m.name == "dhcp", m.name == "tftp", m.name == "http", m.name == "dns", m.name == "lb", m.name == "storm":
		b.rounds = 3
	default:
		b.rounds = 5
	}
	return &b
}

// network makes the segment that everything is served on.
func network(ctx context.Context) error {
	return ip(ctx, [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "br0", "type", "bridge"},
		{"addr", "add", "10.0.0.1/8", "dev", "br0"},
		{"link", "set", "br0", "up"},
	})
}

func ip(ctx context.Context, steps [][]string) error {
	for _, args := range steps {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// A sample is one measured value in each round.
type sample []float64

// String returns "median [least–most]".
func (s sample) String() string {
	if len(s) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f [%.1f–%.1f]", s.median(), slices.Min(s), slices.Max(s))
}

// median returns the middle of what is at least one value.
func (s sample) median() float64 { return slices.Sorted(slices.Values(s))[len(s)/2] }

// until calls ok every half millisecond until it is true.
func until(ctx context.Context, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return errors.New("not ready within " + limit.String())
		case <-tick.C:
		}
	}
	return nil
}
