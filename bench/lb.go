package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

func lbTests() []restartedTest[*lbRunning] {
	return []restartedTest[*lbRunning]{
		{"lb-tcp", lbTCPRows, lbTCP}, {"lb-new", lbNewRows, lbNew}, {"lb-bulk", lbBulkRows, lbBulk},
		{"lb-http", lbHTTPRows, lbHTTP}, {"lb-http-new", lbHTTPNewRows, lbHTTPNew}, {"lb-idle", lbIdleRows, lbIdle},
	}
}

// lbLimit bounds one test of one candidate in one round.
const lbLimit = 2 * time.Minute

// balancers measures bootlab's load balancer beside HAProxy and nginx: candidates in turn within each round.
func balancers(ctx context.Context, b *bench) error {
	candidates, err := selectCandidates(b, lbServers())
	if err != nil {
		return err
	}
	r, err := newLBRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	return compare(ctx, b, candidates, restarted(lbTests(), lbLimit, &r.noise, r.start))
}

// requestRows are the rows of what wrk measures.
func requestRows(key, title string) []row {
	return []row{
		{key, title + ", per second", false},
		{key + "-p99", "the same, p99, ms", true},
		{key + "-cpu", "the same, balancer's CPU, µs a request", true},
	}
}

// besides is how many idle connections each test has beside what it measures.
const besides = 1000

var lbTCPRows = requestRows("lb-tcp", "TCP, requests on 32 connections")

func lbTCP(ctx context.Context, s *lbRunning) (values, error) {
	return s.requests(ctx, "lb-tcp", lbPortTCP)
}

var lbNewRows = requestRows("lb-new", "TCP, 32 clients, a new connection for each request")

func lbNew(ctx context.Context, s *lbRunning) (values, error) {
	return s.requests(ctx, "lb-new", lbPortTCP, "-H", "Connection: close")
}

var lbHTTPRows = requestRows("lb-http", "HTTP/1.1, requests on 32 connections")

func lbHTTP(ctx context.Context, s *lbRunning) (values, error) {
	return s.requests(ctx, "lb-http", lbPortHTTP)
}

var lbHTTPNewRows = requestRows("lb-http-new", "HTTP/1.1, 32 clients, a new connection for each request")

func lbHTTPNew(ctx context.Context, s *lbRunning) (values, error) {
	return s.requests(ctx, "lb-http-new", lbPortHTTP, "-H", "Connection: close")
}

// requests has wrk send requests to one port, beside idle connections to it.
func (s *lbRunning) requests(ctx context.Context, key, port string, options ...string) (values, error) {
	idle, err := holdIdle(ctx, lbAddr+port, besides)
	if err != nil {
		return nil, err
	}
	defer idle.close()
	return wrk(ctx, wrkOrder{&s.process, &s.rig.noise, s.rig.cpus[1], s.rig.asking}, key, "http://"+lbAddr+port+"/", options...)
}

var lbBulkRows = []row{
	{"lb-bulk", "TCP, 8 downloads at once, MB/s", false},
	{"lb-bulk-cpu", "the same, balancer's CPU, s a GB", true},
}

// lbBulk downloads a large body. Backend and client leave its bytes in the kernel, so that the balancer is measured.
func lbBulk(ctx context.Context, s *lbRunning) (values, error) {
	idle, err := holdIdle(ctx, lbAddr+lbPortTCP, besides)
	if err != nil {
		return nil, err
	}
	defer idle.close()
	const clients = 8
	before := s.cpu()
	got, err := httpOrder{lbAddr + lbPortBulk, "/", clients}.fetch(ctx, s.rig.cpus[1], &s.rig.noise)
	if err != nil {
		return nil, err
	}
	if want := clients * s.rig.body; got.Bytes != want {
		return nil, fmt.Errorf("%d bytes came, not %d", got.Bytes, want)
	}
	bytes := float64(got.Bytes)
	return values{"lb-bulk": bytes / 1e6 / got.Took.Seconds(), "lb-bulk-cpu": (s.cpu() - before).Seconds() / (bytes / 1e9)}, nil
}

// manyIdle is how many idle connections are measured: so many bootlab balances with a limit of 20,000 descriptors, which is common.
const manyIdle = 4000

var lbIdleRows = []row{
	{"lb-idle-none", "resident, without connections, MiB", true},
	{"lb-idle", fmt.Sprintf("resident, with %d idle TCP connections, MiB", manyIdle), true},
	{"lb-idle-each", "the same, KiB a connection", true},
}

// lbIdle opens many connections, each of which has one request and is idle then.
func lbIdle(ctx context.Context, s *lbRunning) (values, error) {
	none := s.resident()
	idle, err := holdIdle(ctx, lbAddr+lbPortTCP, manyIdle)
	if err != nil {
		return nil, err
	}
	defer idle.close()
	if err := pause.For(ctx, s.rig.settle); err != nil {
		return nil, err
	}
	with := s.resident()
	if err := idle.stillOpen(); err != nil {
		return nil, err
	}
	return values{"lb-idle-none": none, "lb-idle": with, "lb-idle-each": (with - none) * 1024 / manyIdle}, nil
}
