package main

import (
	"context"
	"fmt"
	"time"
)

func httpTests() []restartedTest[*httpRunning] {
	return []restartedTest[*httpRunning]{{"bulk", bulkRows, bulk}, {"document", documentRows, document}, {"small", smallRows, smallFile}, {"connections", connectionsRows, connections}}
}

// httpLimit bounds one test of one candidate in one round.
const httpLimit = 2 * time.Minute

// web measures bootlab's HTTP server for machines beside nginx and a plain net/http server: candidates in turn within each round.
func web(ctx context.Context, b *bench) error {
	candidates, err := selectCandidates(b, httpServers())
	if err != nil {
		return err
	}
	r, err := newHTTPRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	return compare(ctx, b, candidates, restarted(httpTests(), httpLimit, &r.noise, r.start))
}

// favored is the prefix of a command that pins it to one CPU and gives it the highest priority of ordinary processes. Real-time
// priority, as pinned gives, would spoil p99: the kernel stops a real-time process that keeps its CPU busy for 50 ms of each
// second (sched(7), sched_rt_runtime_us), which showed as a p99 of some 30 ms for every server.
func favored(cpu string) []string { return append(onCPU(cpu), "nice", "-n", "-20") }

var bulkRows = []row{
	{"bulk", "1 GiB file, 8 clients at once, Gbit/s", false},
	{"bulk-cpu", "1 GiB file, 8 clients, server CPU, s a GiB", true},
	{"one", "1 GiB file, 1 client, Gbit/s", false},
	{"one-cpu", "1 GiB file, 1 client, server CPU, s a GiB", true},
	{"bulk-rss", "resident, after this, MiB", true},
}

// bulk downloads the image. Its bytes are dropped in the kernel, so that the sender is measured. A single download is
// fast or half as fast, from any server, depending on how connection and pages meet: one client makes eight of them in a row.
func bulk(ctx context.Context, s *httpRunning) (values, error) {
	v := values{}
	for key, load := range map[string]struct{ clients, times int }{"bulk": {8, 1}, "one": {1, 8}} {
		before := s.cpu()
		var bytes int64
		var took time.Duration
		for range load.times {
			got, err := httpOrder{httpAddr + ":80", s.files + "/" + imageName, load.clients}.fetch(ctx, s.rig.cpus[1], &s.rig.noise)
			if err != nil {
				return nil, err
			}
			bytes, took = bytes+got.Bytes, took+got.Took
		}
		if want := int64(load.clients*load.times) * s.rig.size.image; bytes != want {
			return nil, fmt.Errorf("%d bytes came, not %d", bytes, want)
		}
		v[key] = float64(bytes) * 8 / took.Seconds() / 1e9
		v[key+"-cpu"] = (s.cpu() - before).Seconds() / (float64(bytes) / (1 << 30))
	}
	v["bulk-rss"] = s.resident()
	return v, nil
}

var documentRows = []row{
	{"document", "iPXE script of one machine, 32 connections, per second", false},
	{"document-p99", "the same, p99, ms", true},
	{"document-cpu", "the same, server CPU, µs a request", true},
}

// document requests a rendered script again and again. The others serve the same bytes from a file or from memory.
func document(ctx context.Context, s *httpRunning) (values, error) {
	return s.requests(ctx, "document", s.script)
}

var smallRows = []row{
	{"small", "1 KiB file, 32 connections, per second", false},
	{"small-p99", "the same, p99, ms", true},
	{"small-cpu", "the same, server CPU, µs a request", true},
}

func smallFile(ctx context.Context, s *httpRunning) (values, error) {
	return s.requests(ctx, "small", s.files+"/"+smallName)
}

var connectionsRows = []row{
	{"connections", "1 KiB file, 32 clients, a new connection for each request, per second", false},
	{"connections-p99", "the same, p99, ms", true},
	{"connections-cpu", "the same, server CPU, µs a request", true},
}

func connections(ctx context.Context, s *httpRunning) (values, error) {
	return s.requests(ctx, "connections", s.files+"/"+smallName, "-H", "Connection: close")
}

// requests has wrk request one path from 32 clients, over persistent connections unless the options say otherwise.
func (s *httpRunning) requests(ctx context.Context, key, path string, options ...string) (values, error) {
	return wrk(ctx, wrkOrder{&s.process, &s.rig.noise, s.rig.cpus[1], s.rig.size.asking}, key, s.url(path), options...)
}
