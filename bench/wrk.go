package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in ([\d.]+)(ms|s|m)`)
	wrkP99      = regexp.MustCompile(`99%\s+([\d.]+)(us|ms|s)`)
	wrkErrors   = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx).*$`)
)

// A wrkOrder is what wrk measures, where and how long.
type wrkOrder struct {
	server *process
	noise  *noise
	cpu    string // of wrk
	lasts  time.Duration
}

// wrk requests a URL from 32 clients, over persistent connections unless the options say otherwise. The values are requests per
// second under key, p99 in ms under key-p99, and the server's CPU time in µs a request under key-cpu.
func wrk(ctx context.Context, o wrkOrder, key, url string, options ...string) (values, error) {
	args := append(favored(o.cpu), "wrk", "-t1", "-c32", "-d", o.lasts.String(), "--latency")
	args = append(append(args, options...), url)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	before := o.server.cpu()
	var out []byte
	var err error
	o.noise.during(func() { out, err = cmd.CombinedOutput() })
	used := o.server.cpu() - before
	if err != nil {
		return nil, fmt.Errorf("wrk: %w: %s", err, out)
	}
	if bad := wrkErrors.Find(out); bad != nil {
		return nil, fmt.Errorf("wrk: %s", bad)
	}
	requests, p99 := wrkRequests.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if requests == nil || p99 == nil {
		return nil, fmt.Errorf("wrk says %s", out)
	}
	n, took := number(requests[1]), duration(requests[2], requests[3])
	return values{
		key: n / took.Seconds(), key + "-p99": ms(duration(p99[1], p99[2])), key + "-cpu": float64(used.Microseconds()) / n,
	}, nil
}

func number(b []byte) float64 {
	x, _ := strconv.ParseFloat(string(b), 64) // it matched digits
	return x
}

func duration(value, unit []byte) time.Duration {
	d, _ := time.ParseDuration(string(value) + string(unit)) // it matched a number and a unit
	return d
}
