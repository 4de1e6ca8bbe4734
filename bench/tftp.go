package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/bootlab/bootlab/test/support/tftpload"
)

func tftpTests() []restartedTest[*tftpRunning] {
	return []restartedTest[*tftpRunning]{
		{"window", windowRows, windows}, {"lockstep", lockstepRows, lockstep}, {"far", farRows, farAway},
		{"storm", stormRows, storm}, {"loss", lossRows, losses},
	}
}

// tftpLimit bounds one test of one candidate in one round.
const tftpLimit = time.Minute

// tftp measures bootlab's TFTP beside dnsmasq, tftpd-hpa and atftpd: candidates in turn within each round.
func tftp(ctx context.Context, b *bench) error {
	candidates, err := selectCandidates(b, tftpServers())
	if err != nil {
		return err
	}
	r, err := newTFTPRig(ctx, b)
	if err != nil {
		return err
	}
	defer r.close()
	return compare(ctx, b, candidates, restarted(tftpTests(), tftpLimit, &r.noise, r.start))
}

// whole fetches a file and refuses a result that is not the whole file.
func (s *tftpRunning) whole(ctx context.Context, file string, cfg tftpload.Config) (tftpload.Result, error) {
	got, err := s.rig.fetch(ctx, file, cfg)
	if err == nil && got.Failed > 0 {
		err = fmt.Errorf("%d of %d fetches failed: %s", got.Failed, got.Failed+got.Done, got.Why)
	}
	return got, err
}

// speed adds MB/s and the server's CPU time for a fetch, unless the server did not agree to the window.
func (s *tftpRunning) speed(ctx context.Context, v values, key, file string, cfg tftpload.Config) error {
	before := s.cpu()
	got, err := s.whole(ctx, file, cfg)
	if err != nil || got.Window != max(cfg.Window, 1) {
		return err
	}
	v[key] = got.PerSecond() / 1e6
	if s.forks {
		return nil
	}
	v[key+"-cpu"] = ms(s.cpu()-before) / (float64(got.Bytes) / (1 << 20))
	return nil
}

var windowRows = []row{
	{"w16", "window 16, blksize 1468, MB/s", false},
	{"w16-cpu", "window 16, server CPU, ms a MiB", true},
	{"w4", "window 4 (UEFI's), blksize 1468, MB/s", false},
	{"w4-cpu", "window 4, server CPU, ms a MiB", true},
	{"atftp", "window 16, blksize 1468, with the client atftp, MB/s", false},
}

func windows(ctx context.Context, s *tftpRunning) (values, error) {
	v := values{}
	for key, window := range map[string]int{"w16": 16, "w4": 4} {
		if err := s.speed(ctx, v, key, "big", tftpload.Config{Block: 1468, Window: window}); err != nil {
			return nil, err
		}
	}
	if _, ok := v["w16"]; !ok {
		return v, nil
	}
	var err error
	v["atftp"], err = s.atftp(ctx, "blksize 1468", "windowsize 16")
	return v, err
}

// atftp returns the MB/s of a stranger, started and ended.
func (s *tftpRunning) atftp(ctx context.Context, options ...string) (float64, error) {
	path := filepath.Join(s.dir, "got")
	args := append(pinned(s.rig.cpus[1]), "atftp", "--get", "-r", "public/big", "-l", path)
	for _, o := range options {
		args = append(args, "--option", o)
	}
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], nearAddr)...)
	var out []byte
	var err error
	start := time.Now()
	s.rig.noise.during(func() { out, err = cmd.CombinedOutput() })
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("atftp: %w: %s", err, out)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	want, err := os.ReadFile(filepath.Join(s.rig.root, "public", "big"))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("atftp: %d bytes, and not what the file holds", len(got))
	}
	return float64(len(got)) / took.Seconds() / 1e6, err
}

var lockstepRows = []row{
	{"l1468", "lock-step, blksize 1468, MB/s", false},
	{"l1468-cpu", "lock-step, blksize 1468, server CPU, ms a MiB", true},
	{"l512", "lock-step, blksize 512, MB/s", false},
	{"l512-cpu", "lock-step, blksize 512, server CPU, ms a MiB", true},
	{"latftp", "lock-step, blksize 1468, with the client atftp, MB/s", false},
}

func lockstep(ctx context.Context, s *tftpRunning) (values, error) {
	v := values{}
	err := errors.Join(
		s.speed(ctx, v, "l1468", "big", tftpload.Config{Block: 1468}),
		s.speed(ctx, v, "l512", "mid", tftpload.Config{}))
	if err == nil {
		v["latftp"], err = s.atftp(ctx, "blksize 1468")
	}
	return v, err
}

// agrees reports whether the server does windows.
func (s *tftpRunning) agrees(ctx context.Context) (bool, error) {
	got, err := s.whole(ctx, "one", tftpload.Config{Block: 1468, Window: 16})
	return got.Window == 16, err
}

var farRows = []row{
	{"far1", "1 ms RTT, lock-step, blksize 1468, MB/s", false},
	{"far16", "1 ms RTT, window 16, blksize 1468, MB/s", false},
	{"far64", "1 ms RTT, window 64, blksize 1468, MB/s", false},
}

func farAway(ctx context.Context, s *tftpRunning) (values, error) {
	v := values{}
	can, err := s.agrees(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range []struct {
		key, file string
		window    int
	}{{"far1", "slow", 0}, {"far16", "far", 16}, {"far64", "far", 64}} {
		if x.window > 0 && !can {
			continue // half a minute of lock-step would say nothing new
		}
		cfg := tftpload.Config{Server: far(), Block: 1468, Window: x.window, Wait: tftpload.Sleep}
		if err := s.speed(ctx, v, x.key, x.file, cfg); err != nil {
			return nil, err
		}
	}
	return v, nil
}

var stormRows = []row{
	{"storm", "200 clients x 1 MiB at once, blksize 1468: the last has it after, s", true},
	{"storm-failed", "clients that failed", true},
	{"storm-resent", "packets that clients sent again after 1 s", true},
	{"storm-cpu", "server CPU, ms a MiB", true},
	{"storm-extra", "extra memory of the server, MiB", true},
}

func storm(ctx context.Context, s *tftpRunning) (values, error) {
	before, used := s.resident(), s.cpu()
	peak := s.watch()
	got, err := s.rig.fetch(ctx, "one", tftpload.Config{Block: 1468, Clients: s.rig.size.clients})
	most := peak()
	if err != nil {
		return nil, err
	}
	if got.Failed > 0 {
		fmt.Fprintln(os.Stderr, "a client failed:", got.Why)
	}
	v := values{
		"storm": got.Took.Seconds(), "storm-failed": float64(got.Failed), "storm-resent": float64(got.Resent),
		"storm-extra": max(0, most-before),
	}
	if !s.forks {
		v["storm-cpu"] = ms(s.cpu()-used) / float64(s.rig.size.clients)
	}
	return v, nil
}

// watch looks at the server's memory, and its children's, until the function that it returns is called: that returns the most.
func (s *tftpRunning) watch() func() float64 {
	done, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		seen := 0.0
		for {
			select {
			case <-tick.C:
				seen = max(seen, s.resident())
			case <-done:
				most <- max(seen, s.resident())
				return
			}
		}
	}()
	return func() float64 { close(done); return <-most }
}

var lossRows = []row{
	{"loss", "one lost block in lock-step: nothing comes for, ms", true},
	{"loss-window", "one lost block in a window of 16: nothing new comes for, ms", true},
	{"loss-end", "the last block of a window of 16 lost: nothing new comes for, ms", true},
}

// losses has one block lost on its way. It is the client that loses it: to a server that is the same as a wire that does.
func losses(ctx context.Context, s *tftpRunning) (values, error) {
	v := values{}
	for _, x := range []struct {
		key    string
		window int
		lose   int64
	}{{"loss", 0, 100}, {"loss-window", 16, 100}, {"loss-end", 16, 96}} {
		// The client's own timer is out of the way: what is measured is the server's.
		got, err := s.whole(ctx, "one", tftpload.Config{Block: 1468, Window: x.window, Lose: x.lose, Timeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		if got.Window == max(x.window, 1) {
			v[x.key] = ms(got.Stall)
		}
	}
	return v, nil
}
