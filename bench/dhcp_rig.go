package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const serverSpace = "dhcp-server" // the namespace of the server; the bench's own is the relay's

// sizes are how much of everything is measured.
type sizes struct {
	machines int // of the closed loop, and of each step of growth
	renewed  int // machines that renew
	renewals int // that they make
	full     int // leases at the end of growth
	storm    int // machines of the avalanche
	patience time.Duration
	growing  time.Duration
}

func sizesFor(quick bool) sizes {
	if quick {
		return sizes{machines: 2000, renewed: 500, renewals: 4000, full: 10_000, storm: 200, patience: 5 * time.Second, growing: 10 * time.Second}
	}
	return sizes{machines: 10_000, renewed: 2000, renewals: 20_000, full: 100_000, storm: 1000, patience: 20 * time.Second, growing: 40 * time.Second}
}

// A rig is two namespaces joined by a veth pair: the server's, on one CPU, and the relay's, on another.
type rig struct {
	*bench
	size sizes
	cpus [2]string // of the server, of the load
	load *loader
}

func newRig(ctx context.Context, b *bench) (*rig, error) {
	r := &rig{bench: b, size: sizesFor(b.quick)}
	var err error
	if r.cpus, err = twoCPUs(); err != nil {
		return nil, err
	}
	if err := r.wire(ctx); err != nil {
		return nil, err
	}
	r.load, err = startLoader(ctx, r.cpus[1])
	return r, err
}

func (r *rig) wire(ctx context.Context) error {
	steps := [][]string{
		{"netns", "add", serverSpace},
		{"-n", serverSpace, "link", "set", "lo", "up"},
		{"link", "add", "relay0", "type", "veth", "peer", "name", serverNIC, "netns", serverSpace},
		{"-n", serverSpace, "addr", "add", dhcpAddress + "/12", "dev", serverNIC},
		{"-n", serverSpace, "link", "set", serverNIC, "up"},
		{"link", "set", "relay0", "up"},
	}
	for _, a := range relays() {
		steps = append(steps, []string{"addr", "add", a + "/12", "dev", "relay0"})
	}
	return ip(ctx, steps)
}

func (r *rig) close() {
	r.load.close()
	_ = exec.Command("ip", "netns", "del", serverSpace).Run()
}

// A server is a candidate that runs.
type server struct {
	process
	rig       *rig
	candidate *dhcpServer
	args, env []string
	dir       string
}

// start starts a candidate without leases and waits until it offers an address.
func (r *rig) start(ctx context.Context, c *dhcpServer, o serverOptions) (*server, error) {
	dir, err := r.scratch(c.name)
	if err != nil {
		return nil, err
	}
	o.probe, o.quiet = r.probe, !r.logLeases
	args, env, err := c.args(r.binary, dir, o)
	if err != nil {
		return nil, err
	}
	s := &server{rig: r, candidate: c, args: args, env: env, dir: dir}
	if err := r.load.reset(ctx); err != nil {
		return nil, err
	}
	if err := s.again(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// again starts it on what is on disk.
func (s *server) again(ctx context.Context) error {
	log := filepath.Join(s.dir, "log")
	if err := s.begin(onCPU(s.rig.cpus[0]), serverSpace, s.args, s.env, log); err != nil {
		return err
	}
	for range 15 {
		if ok, err := s.rig.load.answers(ctx); ok || err != nil {
			return err
		}
	}
	text, _ := os.ReadFile(log)
	return fmt.Errorf("%s gives no address: %.600s", s.candidate.name, text)
}

func (s *server) stop() error { return s.rig.leave(&s.process, s.dir) }
