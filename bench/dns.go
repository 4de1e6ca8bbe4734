package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

func dnsTests() []restartedTest[*dnsRunning] {
	return []restartedTest[*dnsRunning]{
		{"mix", mixRows, mix}, {"steady", steadyRows, steady}, {"cached", cachedRows, cached}, {"large", largeRows, large},
	}
}

// dnsLimit bounds one test of one candidate in one round.
const dnsLimit = 2 * time.Minute

// domainNames measures bootlab's DNS server beside Knot, dnsmasq and BIND: candidates in turn within each round.
func domainNames(ctx context.Context, b *bench) error {
	candidates, err := selectCandidates(b, dnsServers())
	if err != nil {
		return err
	}
	r, err := newDNSRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	return compare(ctx, b, candidates, restarted(dnsTests(), dnsLimit, &r.noise, r.start))
}

var mixRows = []row{
	{"mix", "mix of A, AAAA, PTR, SRV, wildcard and missing names, 128 in flight, per second", false},
	{"mix-cpu", "the same, server CPU, µs a query", true},
}

// mix sends as many queries as are answered.
func mix(ctx context.Context, s *dnsRunning) (values, error) {
	return s.asMany(ctx, "mix", dnsOrder{Names: "mix"})
}

var steadyRows = []row{
	{"steady", "the mix at 5,000 queries/s, median, µs", true},
	{"steady-p99", "the same, p99, µs", true},
}

// steady sends the mix at a rate that all candidates answer.
func steady(ctx context.Context, s *dnsRunning) (values, error) {
	got, err := s.rig.ask(ctx, dnsOrder{Names: "mix", Rate: 5000, For: s.rig.asking})
	if err != nil {
		return nil, err
	}
	return values{"steady": got.Median.Seconds() * 1e6, "steady-p99": got.P99.Seconds() * 1e6}, nil
}

var cachedRows = []row{
	{"cached", "forwarded names that the cache has, 128 in flight, per second", false},
	{"cached-cpu", "the same, server CPU, µs a query", true},
}

// cached asks for names of another server, which all were asked for before.
func cached(ctx context.Context, s *dnsRunning) (values, error) {
	if _, err := s.rig.ask(ctx, dnsOrder{Names: "forwarded", Once: true}); err != nil {
		return nil, err
	}
	return s.asMany(ctx, "cached", dnsOrder{Names: "forwarded"})
}

var largeRows = []row{
	{"large", "A records of a zone of 100,000 names, 128 in flight, per second", false},
	{"large-cpu", "the same, server CPU, µs a query", true},
	{"large-reload", "the same zone changed, until a new name is answered, under 5,000 queries/s, ms", true},
	{"large-lost", "queries that had no answer within 0.5 s meanwhile", true},
	{"large-rss", "resident, after this, MiB", true},
}

// large asks for the names of a large zone, then changes that zone under load.
func large(ctx context.Context, s *dnsRunning) (values, error) {
	v, err := s.asMany(ctx, "large", dnsOrder{Names: "large"})
	if err != nil {
		return nil, err
	}
	var got dnsResult
	var asked error
	var load sync.WaitGroup
	load.Go(func() { got, asked = s.rig.ask(ctx, dnsOrder{Names: "large", Rate: 5000, For: s.rig.asking}) })
	if err := pause.For(ctx, s.rig.asking/4); err != nil {
		return nil, err
	}
	took, err := s.reload(ctx)
	load.Wait()
	if err == nil {
		err = asked
	}
	v["large-reload"], v["large-lost"], v["large-rss"] = ms(took), float64(got.Lost), s.resident()
	return v, err
}

// asMany sends as many queries as are answered.
func (s *dnsRunning) asMany(ctx context.Context, key string, o dnsOrder) (values, error) {
	o.For = s.rig.asking
	before := s.cpu()
	got, err := s.rig.ask(ctx, o)
	if err != nil {
		return nil, err
	}
	used := s.cpu() - before
	if got.Lost*1000 > got.Answered {
		return nil, fmt.Errorf("%d of %d queries were lost", got.Lost, got.Answered+got.Lost)
	}
	n := float64(got.Answered)
	return values{key: n / got.Took.Seconds(), key + "-cpu": used.Seconds() * 1e6 / n}, nil
}

// reload adds a name to the large zone, makes the candidate read it, and waits for its answer.
func (s *dnsRunning) reload(ctx context.Context) (took time.Duration, err error) {
	if err := s.write(filepath.Join(s.dir, s.largeFile), largeNames+1); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := s.tell(s); err != nil {
		return 0, err
	}
	var got dnsResult
	err = carryOut(ctx, favored(s.rig.cpus[1]), dnsLoadCommand, dnsOrder{Names: "added", Await: true}, &got)
	return time.Since(start), err
}

// write makes the file of the large zone, as a zone or as hosts.
func (s *dnsRunning) write(path string, names int) error {
	text := largeZone(names)
	if s.hosts {
		text = largeHosts(names)
	}
	part := path + ".new"
	if err := os.WriteFile(part, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
