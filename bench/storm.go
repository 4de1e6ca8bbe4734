package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bootlab/bootlab/test/support/bootload"
)

// bootCommand is the argument that makes this program the rack of machines, in a process and on a CPU of its own.
const bootCommand = "boot-load"

// How much a storm is: what an installer of today weighs.
const (
	stormMachines = 500
	stormProgram  = 1 << 20
	stormKernel   = 8 << 20
	stormInitrd   = 32 << 20
	stormLimit    = 2 * time.Minute
)

var rackRows = []row{
	{"done", "machines that finished", false},
	{"last", "the last is done after, s", true},
	{"p50", "half of them are done after, s", true},
	{"first", "the first is done after, s", true},
	{"fair", "the last's time ÷ the median's", true},
	{"lease", "all have firmware's lease after, s", true},
	{"program", "all have their program by TFTP after, s", true},
	{"script", "all have their script after, s", true},
	{"initrd", "all have kernel and initrd after, s", true},
	{"again", "messages of DHCP and TFTP sent again", true},
	{"cpu", "server CPU, s", true},
	{"load", "CPU of the side that plays the machines, s", true},
	{"before", "resident before, MiB", true},
	{"peak", "resident, most, MiB", true},
}

// bootStorm switches many machines on at once and lets them boot from bootlab, then from dnsmasq and nginx.
func bootStorm(ctx context.Context, b *bench) error {
	candidates, err := selectCandidates(b, stormServers())
	if err != nil {
		return err
	}
	r, err := newRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	s := &stormRig{rig: r, machines: stormMachines}
	if b.quick {
		s.machines /= 5
	}
	if err := s.lay(ctx); err != nil {
		return err
	}
	b.tests = nil // it has but this one
	return compare(ctx, b, candidates, []comparison[*stormContender]{{"storm", rackRows, s.run}})
}

// run starts a candidate without a memory of anything and lets all machines boot from it.
func (s *stormRig) run(ctx context.Context, c *stormContender) (got values, foreign float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stormLimit)
	defer cancel()
	running, err := s.start(ctx, c)
	defer func() {
		for _, p := range running {
			p.end()
		}
	}()
	if err != nil {
		return nil, 0, err
	}
	pids := tree(running)
	before := memory(pids, "VmRSS")
	for _, pid := range pids {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // the peak begins now, see proc(5)
	}
	used := cpuOf(pids)
	var result bootload.Result
	var n noise
	n.during(func() { result, err = s.boot(ctx) })
	if err != nil {
		return nil, 0, err
	}
	if len(result.Failed) > 0 || s.quick {
		fmt.Fprintln(os.Stderr, result)
	}
	return stormValues(result, (cpuOf(pids) - used).Seconds(), before, memory(pids, "VmHWM")), n.share(), nil
}

func stormValues(r bootload.Result, cpu, before, peak float64) values {
	v := values{
		"done": float64(r.Done), "first": r.First.Seconds(), "p50": r.P50.Seconds(), "last": r.Last.Seconds(), "fair": r.Fairness(),
		"again": float64(r.Again), "cpu": cpu, "load": r.CPU.Seconds(), "before": before, "peak": peak,
	}
	for _, stage := range r.Stages {
		switch stage.Name {
		case "firmware's lease":
			v["lease"] = stage.Last.Seconds()
		case "program", "script", "initrd":
			v[stage.Name] = stage.Last.Seconds()
		}
	}
	return v
}

// boot is the rack, in its own process.
func (s *stormRig) boot(ctx context.Context) (r bootload.Result, err error) {
	err = carryOut(ctx, onCPU(s.cpus[1]), bootCommand, s.config(), &r)
	return r, err
}
