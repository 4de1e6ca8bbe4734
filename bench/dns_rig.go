package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
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
	err = ip(ctx, [][]string{
		{"netns", "add", dnsSpace}, {"-n", dnsSpace, "link", "set", "lo", "up"},
		{"link", "add", "dns0", "type", "veth", "peer", "name", "dns1", "netns", dnsSpace},
		{"addr", "add", dnsLoadAddr + "/16", "dev", "dns0"}, {"link", "set", "dns0", "up"},
		{"-n", dnsSpace, "addr", "add", dnsAddr + "/16", "dev", "dns1"}, {"-n", dnsSpace, "link", "set", "dns1", "up"},
	})
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, "upstream.log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(self, upstreamCommand)
	cmd.Stdout, cmd.Stderr = log, log
	r.upstream = process{cmd: cmd, log: log}
	if err := cmd.Start(); err != nil {
		r.upstream = process{}
		return errors.Join(err, log.Close())
	}
	return nil
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
	for range 200 {
		if _, err = r.ask(ctx, dnsOrder{Names: "mix", Once: true}); err == nil {
			_, err = r.ask(ctx, dnsOrder{Names: "last", Once: true})
		}
		if err == nil {
			return s, nil
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	text, _ := os.ReadFile(log)
	return nil, errors.Join(fmt.Errorf("%s does not answer: %w: %.600s", c.name, err, text), s.stop())
}

func (s *dnsRunning) stop() error { return s.rig.leave(&s.process, s.dir) }

// ask has an order carried out by a process on the load's CPU.
func (r *dnsRig) ask(ctx context.Context, o dnsOrder) (got dnsResult, err error) {
	r.noise.during(func() { err = carryOut(ctx, favored(r.cpus[1]), dnsLoadCommand, o, &got) })
	return got, err
}
