package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var perfRows = []row{
	{"clean", "perfdhcp, highest clean rate, DORA per second", false},
	{"clean-offer", "perfdhcp at that rate, DISCOVER to OFFER p99, ms", true},
	{"clean-ack", "perfdhcp at that rate, REQUEST to ACK p99, ms", true},
}

const (
	perfClients = "20000" // different machines
	perfPeriod  = 1       // seconds of one run
	cleanDrops  = 0.001
	cleanOf     = 0.97 // of the rate asked for that must have been sent
	slowestRate = 50
	firstRate   = 400
	fastestRate = 100_000
)

// perfRate finds the highest rate of perfdhcp that a server answers cleanly, each try from an empty book.
func perfRate(ctx context.Context, r *rig, c *dhcpServer) (values, error) {
	v := values{}
	try := func(rate int) (bool, error) {
		p, err := r.perf(ctx, c, serverOptions{}, "-r", strconv.Itoa(rate), "-R", perfClients, "-p", strconv.Itoa(perfPeriod), "-x", "t")
		if err != nil || !p.clean(rate) {
			return false, err
		}
		v["clean"] = float64(rate)
		v["clean-offer"], v["clean-ack"] = p.leg("DISCOVER-OFFER").p99, p.leg("REQUEST-ACK").p99
		return true, nil
	}
	return v, climb(try)
}

// climb looks for the highest rate that goes well: twice the rate while it does, then two halvings between good and bad.
func climb(try func(rate int) (bool, error)) error {
	good, bad, rate := 0, 0, firstRate
	for halvings := 0; halvings <= 2 && rate >= slowestRate && rate <= fastestRate; {
		ok, err := try(rate)
		if err != nil {
			return err
		}
		if ok {
			good = rate
		} else {
			bad = rate
		}
		switch {
		case bad == 0:
			rate = good * 2
		case good == 0:
			rate = bad / 2
		default:
			rate = (good + bad) / 2
			halvings++
		}
	}
	return nil
}

var mixedRows = []row{
	{"mixed-drops", "perfdhcp 400/s with option 82, 150/s renewals, 50/s releases: DORA legs lost", true},
	{"mixed-renew-drops", "renewals lost of these", true},
	{"mixed-renew", "renewal average, ms", true},
}

// perfMixed is what a quiet day looks like, at a rate that all candidates can do.
func perfMixed(ctx context.Context, r *rig, c *dhcpServer) (values, error) {
	p, err := r.perf(ctx, c, serverOptions{}, "-r", "400", "-R", perfClients, "-p", "4", "-f", "150", "-F", "50", "-o", "82,0104deadbeef")
	if err != nil {
		return nil, err
	}
	renewals := p.leg("REQUEST-ACK (renewal)")
	if renewals.sent == 0 {
		return nil, fmt.Errorf("perfdhcp sent no renewals")
	}
	return values{
		"mixed-drops":       float64(p.leg("DISCOVER-OFFER").drops() + p.leg("REQUEST-ACK").drops()),
		"mixed-renew-drops": float64(renewals.drops()), "mixed-renew": renewals.average,
	}, nil
}

var avalancheRows = []row{
	{"avalanche", "perfdhcp avalanche, 1,000 machines at once: everyone has an address after, s", true},
	{"avalanche-resent", "messages sent again meanwhile", true},
}

var (
	provisioned = regexp.MustCompile(`It took (\d+):(\d+):([\d.]+) to provision (\d+) clients`)
	resent      = regexp.MustCompile(`Requests resent: (\d+)`)
)

// storms is of how many avalanches one sample is the median: perfdhcp looks every 200 ms whether all have an address, and
// its back-off is random.
const storms = 5

// avalanche: perfdhcp sends all DISCOVERs at once and backs off as firmware does.
func avalanche(ctx context.Context, r *rig, c *dhcpServer) (values, error) {
	var took, again sample
	for range storms {
		p, err := r.perf(ctx, c, serverOptions{}, "--scenario", "avalanche", "-R", strconv.Itoa(r.size.storm))
		if err != nil {
			return nil, err
		}
		t, n, err := p.provisioned()
		if err != nil {
			return nil, err
		}
		took, again = append(took, t), append(again, n)
	}
	return values{"avalanche": took.median(), "avalanche-resent": again.median()}, nil
}

// provisioned returns after how many seconds the last machine of an avalanche had its address, and how many messages were
// sent again.
func (p *perfOutput) provisioned() (took, again float64, err error) {
	clock, n := provisioned.FindStringSubmatch(p.text), resent.FindStringSubmatch(p.text)
	if clock == nil || n == nil {
		return 0, 0, fmt.Errorf("perfdhcp avalanche did not end: %.300s", p.text)
	}
	for _, part := range clock[1:4] {
		v, _ := strconv.ParseFloat(part, 64)
		took = took*60 + v
	}
	again, _ = strconv.ParseFloat(n[1], 64)
	return took, again, nil
}

var fillRows = []row{
	{"fill", "perfdhcp, 50,000 machines, 2,500 a second, from a pool of 65,024: ACKs", false},
	{"fill-offers", "of these machines, DISCOVERs without an offer", true},
}

const (
	fillClients = "50000"
	fillRate    = "2500" // a second: far below what every candidate but dnsmasq and ISC dhcpd can do
	fillLast    = "10.65.253.255"
)

// fill: each of many machines asks once, until three quarters of a pool are leased. A server that takes them for a flood gives fewer.
func fill(ctx context.Context, r *rig, c *dhcpServer) (values, error) {
	p, err := r.perf(ctx, c, serverOptions{last: fillLast}, "-r", fillRate, "-R", fillClients, "-n", fillClients)
	if err != nil {
		return nil, err
	}
	return values{"fill": float64(p.leg("REQUEST-ACK").received), "fill-offers": float64(p.leg("DISCOVER-OFFER").drops())}, nil
}

// perf runs perfdhcp against a candidate that has no leases. As a relay it always is.
func (r *rig) perf(ctx context.Context, c *dhcpServer, o serverOptions, args ...string) (p *perfOutput, err error) {
	o.lease = 6 * time.Hour
	s, err := r.start(ctx, c, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	args = slices.Concat(onCPU(r.cpus[1]), []string{"perfdhcp", "-4", "-l", relays()[0], "-g", "single", "-W", "500000"}, args, []string{dhcpAddress})
	// Into a file: a pipe would have us read beside it while it measures.
	path := filepath.Join(s.dir, "perfdhcp")
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	var failed error
	r.load.noise.during(func() { failed = cmd.Run() }) // 3: some exchanges were not completed, which the numbers tell
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var exit *exec.ExitError
	if failed != nil && (!errors.As(failed, &exit) || exit.ExitCode() != 3) {
		return nil, fmt.Errorf("perfdhcp: %w: %.300s", failed, text)
	}
	return parsePerf(text), nil
}

// A perfLeg is what perfdhcp says of one kind of question and its answer.
type perfLeg struct {
	name           string
	sent, received int
	average, p99   float64 // ms; p99 with -x t only
}

func (l perfLeg) drops() int { return l.sent - l.received }

type perfOutput struct {
	text string
	legs []perfLeg
}

func (p *perfOutput) leg(name string) perfLeg {
	for _, l := range p.legs {
		if l.name == name {
			return l
		}
	}
	return perfLeg{}
}

// clean reports whether nearly nothing was lost of what was sent, and whether nearly all was sent.
func (p *perfOutput) clean(rate int) bool {
	offers, acks := p.leg("DISCOVER-OFFER"), p.leg("REQUEST-ACK")
	lost := offers.sent - acks.received // on either leg
	return offers.sent > 0 && float64(lost) < cleanDrops*float64(offers.sent) && float64(offers.sent) >= cleanOf*float64(rate*perfPeriod)
}

// parsePerf reads the statistics, and the times of all exchanges if they are there: those come after all statistics, in blocks
// of the same names.
func parsePerf(text []byte) *perfOutput {
	p := &perfOutput{text: string(text)}
	at := -1 // the leg that lines speak of
	var times []float64
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ": ")
		switch key {
		case "***Statistics for":
			at = len(p.legs)
			p.legs = append(p.legs, perfLeg{name: strings.TrimSuffix(value, "***")})
		case "***Timestamps for packets":
			p.finish(at, times)
			at, times = slices.IndexFunc(p.legs, func(l perfLeg) bool { return l.name == strings.TrimSuffix(value, "***") }), nil
		case "sent / received":
			if took, ok := perfTime(value); ok {
				times = append(times, took)
			}
		default:
			if at >= 0 {
				p.legs[at].statistic(key, value)
			}
		}
	}
	p.finish(at, times)
	return p
}

func (l *perfLeg) statistic(key, value string) {
	switch key {
	case "sent packets":
		l.sent, _ = strconv.Atoi(value)
	case "received packets":
		l.received, _ = strconv.Atoi(value)
	case "avg delay":
		l.average, _ = strconv.ParseFloat(strings.TrimSuffix(value, " ms"), 64)
	}
}

// perfTime reads "000007.992522 / 000007.992648", in seconds, as milliseconds between.
func perfTime(s string) (float64, bool) {
	a, b, _ := strings.Cut(s, " / ")
	sent, err1 := strconv.ParseFloat(a, 64)
	received, err2 := strconv.ParseFloat(b, 64)
	return (received - sent) * 1000, err1 == nil && err2 == nil && !math.IsNaN(received)
}

func (p *perfOutput) finish(at int, times []float64) {
	if at < 0 || len(times) == 0 {
		return
	}
	slices.Sort(times)
	p.legs[at].p99 = times[min(len(times)-1, len(times)*99/100)]
}
