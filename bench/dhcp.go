package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bootlab/bootlab/bench/dhcpload"
	"github.com/bootlab/bootlab/internal/host/pause"
)

// A dhcpTest is one measurement of one candidate, from an empty lease book. It returns its values by row.
type dhcpTest struct {
	name  string
	rows  []row
	limit time.Duration // for one candidate in one round
	run   func(ctx context.Context, r *rig, c *dhcpServer) (values, error)
}

func dhcpTests() []dhcpTest {
	return []dhcpTest{
		{"loop", loopRows, 2 * time.Minute, closedLoop},
		{"written", writtenRows, 2 * time.Minute, writtenRenewals},
		{"growth", growthRows, 3 * time.Minute, growth},
		{"perfdhcp", perfRows, 3 * time.Minute, perfRate},
		{"mixed", mixedRows, time.Minute, perfMixed},
		{"avalanche", avalancheRows, time.Minute, avalanche},
		{"fill", fillRows, 2 * time.Minute, fill},
	}
}

func dhcpTestNames() (all []string) {
	for _, t := range dhcpTests() {
		all = append(all, t.name)
	}
	return all
}

// dhcp measures bootlab's DHCP beside Kea, ISC dhcpd and dnsmasq: candidates in turn within each round.
func dhcp(ctx context.Context, b *bench) error {
	r, err := newRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	candidates, err := selectCandidates(b, dhcpServers())
	if err != nil {
		return err
	}
	var comparisons []comparison[*dhcpServer]
	for _, t := range dhcpTests() {
		comparisons = append(comparisons, comparison[*dhcpServer]{t.name, t.rows, func(ctx context.Context, c *dhcpServer) (values, float64, error) {
			return r.sample(ctx, t, c)
		}})
	}
	return compare(ctx, b, candidates, comparisons)
}

// sample is one test of one candidate.
func (r *rig) sample(ctx context.Context, t dhcpTest, c *dhcpServer) (values, float64, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	r.load.noise = noise{}
	got, err := t.run(ctx, r, c)
	return got, r.load.noise.share(), err
}

var loopRows = []row{
	{"dora", "new leases (DORA), 32 in flight, per second", false},
	{"dora-p50", "whole exchange p50, ms", true},
	{"dora-p99", "whole exchange p99, ms", true},
	{"offer-p99", "DISCOVER to OFFER p99, ms", true},
	{"ack-p99", "REQUEST to ACK p99, ms", true},
	{"dora-cpu", "server CPU, µs a DORA", true},
	{"dora-failed", "machines that got no address, or a wrong answer", true},
	{"renew", "renewals of 2,000 fresh leases, per second", false},
	{"renew-p99", "renewal p99, ms", true},
	{"renew-cpu", "server CPU, µs a renewal", true},
	{"rss-empty", "resident, empty, MiB", true},
	{"rss-loop", "resident, after this, MiB", true},
	{"lost", "leases lost by SIGKILL after the ACK", true},
}

// closedLoop measures new leases, then renewals. Then bootlab is killed, and its leases are checked after a restart.
func closedLoop(ctx context.Context, r *rig, c *dhcpServer) (v values, err error) {
	s, err := r.start(ctx, c, serverOptions{lease: time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	v = values{"rss-empty": s.resident()}
	before := s.cpu()
	dora, err := r.load.dora(ctx, dhcpload.Machines{Count: r.size.machines}, r.size.patience)
	if err != nil {
		return nil, err
	}
	v.exchange("dora", &dora, s.cpu()-before)
	v["offer-p99"], v["ack-p99"] = ms(dora.OfferP99), ms(dora.AckP99)
	v["dora-failed"] = float64(dora.Failed)
	r.complain(c, &dora)
	if dora.Done == 0 {
		return v, nil // there is no lease to renew
	}
	before = s.cpu()
	renewed, err := r.load.renew(ctx, dhcpload.Machines{Count: r.size.renewed}, r.size.renewals, r.size.patience)
	if err != nil {
		return nil, err
	}
	v.exchange("renew", &renewed, s.cpu()-before)
	r.complain(c, &renewed)
	v["rss-loop"] = s.resident()
	if c.leases == nil {
		return v, nil
	}
	lost, err := r.lost(ctx, s)
	v["lost"] = float64(lost)
	return v, err
}

// exchange adds what a load saw. cpu is the server's.
func (v values) exchange(key string, x *dhcpload.Result, cpu time.Duration) {
	if x.Done == 0 {
		return
	}
	v[key] = x.PerSecond()
	v[key+"-p50"], v[key+"-p99"] = ms(x.P50), ms(x.P99)
	v[key+"-cpu"] = float64(cpu.Microseconds()) / float64(x.Done)
}

// lost kills the server, starts it again on what is on disk, and counts the acknowledged leases that it does not have.
func (r *rig) lost(ctx context.Context, s *server) (int, error) {
	acknowledged, err := r.load.leases(ctx)
	if err != nil {
		return 0, err
	}
	if len(acknowledged) == 0 {
		return 0, errors.New("no lease could be lost")
	}
	s.kill()
	if err := s.again(ctx); err != nil {
		return 0, fmt.Errorf("after SIGKILL: %w", err)
	}
	booked, err := s.candidate.leases(ctx, r, s.dir)
	if err != nil {
		return 0, err
	}
	lost := 0
	for mac, a := range acknowledged {
		if booked[mac] != a {
			lost++
		}
	}
	return lost, nil
}

var writtenRows = []row{
	{"written", "renewals that must be stored, per second", false},
	{"written-p99", "such a renewal p99, ms", true},
	{"written-cpu", "server CPU, µs such a renewal", true},
}

// shortLease is short, as the test waits for the quarter of it in which a server need not store a renewal.
const (
	shortLease = time.Minute
	lazyPart   = shortLease * 27 / 100
)

// writtenRenewals renews each lease once, when so much of it has passed that every server must store the renewal.
func writtenRenewals(ctx context.Context, r *rig, c *dhcpServer) (v values, err error) {
	s, err := r.start(ctx, c, serverOptions{lease: shortLease})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	dora, err := r.load.dora(ctx, dhcpload.Machines{Count: r.size.renewed * 2}, lazyPart/2)
	if err != nil {
		return nil, err
	}
	if c.lazy {
		if err := pause.For(ctx, lazyPart); err != nil {
			return nil, err
		}
	}
	before := s.cpu()
	renewed, err := r.load.renew(ctx, dhcpload.Machines{Count: r.size.renewed * 2}, dora.Done, lazyPart)
	if err != nil {
		return nil, err
	}
	v = values{}
	v.exchange("written", &renewed, s.cpu()-before)
	r.complain(c, &renewed)
	return v, nil
}

var growthRows = []row{
	{"at-0", "new leases per second, none before", false},
	{"at-half", "new leases per second, 50,000 before", false},
	{"at-full", "new leases per second, 100,000 before", false},
	{"reached", "leases reached in 40 s", false},
	{"per-lease", "resident memory, KiB a lease", true},
}

// growth measures twice the loop's machines at a time while the lease book grows: long enough that each window
// includes work that is done now and then, such as a checkpoint.
func growth(ctx context.Context, r *rig, c *dhcpServer) (v values, err error) {
	s, err := r.start(ctx, c, serverOptions{lease: 6 * time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	empty := s.resident()
	v = values{}
	n := 2 * r.size.machines
	between := r.size.full/2 - n
	have, next, end := 0, 0, time.Now().Add(r.size.growing)
	for _, step := range []struct {
		key   string // "": only to get there
		count int
	}{{"at-0", n}, {"", between}, {"at-half", n}, {"", between}, {"at-full", n}} {
		x, err := r.load.dora(ctx, dhcpload.Machines{First: next, Count: step.count}, time.Until(end))
		if err != nil {
			return nil, err
		}
		r.complain(c, &x)
		have += x.Done
		next += step.count
		if x.Done+x.Failed < step.count {
			break // time is over
		}
		if step.key != "" {
			v[step.key] = x.PerSecond()
		}
	}
	v["reached"] = float64(have)
	if err := pause.For(ctx, 2*time.Second); err != nil { // freed memory is returned meanwhile
		return nil, err
	}
	v["per-lease"] = (s.resident() - empty) * 1024 / float64(max(have, 1))
	return v, nil
}

// complain prints wrong answers: a server that answers wrongly must not count as fast.
func (r *rig) complain(c *dhcpServer, x *dhcpload.Result) {
	for why, n := range x.Wrong {
		fmt.Fprintf(os.Stderr, "%s: %d answers: %s\n", c.name, n, why)
	}
	if x.Failed+x.Retries > 0 {
		fmt.Fprintf(os.Stderr, "%s: %d exchanges failed, %d messages sent again, %d answers late\n", c.name, x.Failed, x.Retries, x.Late)
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
