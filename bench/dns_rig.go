package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// The veth pair between server and load. The load's side has the server that is forwarded to.
const (
	dnsSpace    = "dns-server"
	dnsAddr     = "10.98.0.1"
	dnsLoadAddr = "10.98.0.2"
)

// A dnsRig is two namespaces, the server's on one CPU and the load's on another.
type dnsRig struct {
	*bench
	asking   time.Duration
	cpus     [2]string
	upstream process
	noise    noise
}

func newDNSRig(ctx context.Context, b *bench) (*dnsRig, error) {
	r := &dnsRig{bench: b, asking: 5 * time.Second}
	if b.quick {
		r.asking = time.Second
	}
	var err error
	if r.cpus, err = twoCPUs(); err != nil {
		return nil, err
	}
	err = veth(ctx, dnsSpace, "dns", dnsAddr, dnsLoadAddr)
	if err == nil {
		err = r.startUpstream()
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// upstreamCommand is the argument that makes this program the server that is forwarded to.
const upstreamCommand = "dns-upstream"

func (r *dnsRig) startUpstream() error {
	return r.upstream.beginSelf(nil, filepath.Join(r.dir, "upstream.log"), upstreamCommand)
}

func (r *dnsRig) close() {
	r.upstream.kill()
	_ = exec.Command("ip", "netns", "del", dnsSpace).Run()
}

// A dnsRunning is a candidate that runs.
type dnsRunning struct {
	process
	*dnsServer
	rig *dnsRig
	dir string
}

// start starts a candidate and waits until it answers every kind of question as it should.
func (r *dnsRig) start(ctx context.Context, c *dnsServer) (*dnsRunning, error) {
	dir, err := r.scratch(c.name)
	if err != nil {
		return nil, err
	}
	s := &dnsRunning{dnsServer: c, rig: r, dir: dir}
	if err := s.write(filepath.Join(dir, c.largeFile), largeNames); err != nil {
		return nil, err
	}
	args, err := c.args(r.binary, dir)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	if err := s.begin(favored(r.cpus[0]), dnsSpace, args, nil, log); err != nil {
		return nil, err
	}
	err = s.await(ctx, func() error {
		if _, err := r.ask(ctx, dnsOrder{Names: "mix", Once: true}); err != nil {
			return err
		}
		_, err := r.ask(ctx, dnsOrder{Names: "last", Once: true})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not answer: %w", c.name, err), s.stop())
	}
	return s, nil
}

func (s *dnsRunning) stop() error { return s.rig.leave(&s.process, s.dir) }

// ask has an order carried out by a process on the load's CPU.
func (r *dnsRig) ask(ctx context.Context, o dnsOrder) (got dnsResult, err error) {
	r.noise.during(func() { err = carryOut(ctx, favored(r.cpus[1]), dnsLoadCommand, o, &got) })
	return got, err
}
