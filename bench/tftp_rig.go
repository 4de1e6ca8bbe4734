package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/test/support/tftpload"
)

// The two networks between server and load: a veth pair, and a wire of 1 ms there and back.
const (
	tftpSpace = "tftp-server"
	nearAddr  = "10.99.0.1"
	farAddr   = "10.98.0.1"
	farDelay  = 500 * time.Microsecond // each way
)

// tftpSizes are the files, by name below public/, in MiB.
type tftpSizes struct {
	big, mid, far, slow int
	clients             int // of the storm, each of which fetches 1 MiB
}

func tftpSizesFor(quick bool) tftpSizes {
	if quick {
		return tftpSizes{big: 8, mid: 4, far: 4, slow: 1, clients: 50}
	}
	return tftpSizes{big: 64, mid: 24, far: 32, slow: 2, clients: 200}
}

// A tftpRig is two namespaces, the server's on one CPU and the load's on another, and what is fetched.
type tftpRig struct {
	*bench
	size  tftpSizes
	cpus  [2]string
	root  string // what is served
	wire  *exec.Cmd
	noise noise
}

func newTFTPRig(ctx context.Context, b *bench) (*tftpRig, error) {
	r := &tftpRig{bench: b, size: tftpSizesFor(b.quick), root: filepath.Join(b.dir, "tftp")}
	var err error
	if r.cpus, err = twoCPUs(); err != nil {
		return nil, err
	}
	if err := r.files(); err != nil {
		return nil, err
	}
	if err := r.lay(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// files writes what is fetched: noise, so that no block is like another.
func (r *tftpRig) files() error {
	if err := os.MkdirAll(filepath.Join(r.root, "public"), 0o755); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{7})
	for name, size := range map[string]int{"big": r.size.big, "mid": r.size.mid, "far": r.size.far, "slow": r.size.slow, "one": 1} {
		b := make([]byte, size<<20)
		_, _ = random.Read(b)
		if err := os.WriteFile(filepath.Join(r.root, "public", name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// lay lays both wires.
func (r *tftpRig) lay(ctx context.Context) error {
	if err := ip(ctx, [][]string{{"netns", "add", tftpSpace}, {"-n", tftpSpace, "link", "set", "lo", "up"},
		{"link", "add", "near0", "type", "veth", "peer", "name", "near1", "netns", tftpSpace}}); err != nil {
		return err
	}
	if err := r.startWire(ctx); err != nil {
		return err
	}
	steps := [][]string{{"link", "set", "far1", "netns", tftpSpace}}
	for name, net := range map[string]string{"near": nearAddr, "far": farAddr} {
		steps = append(steps,
			[]string{"addr", "add", strings.TrimSuffix(net, "1") + "2/24", "dev", name + "0"},
			[]string{"link", "set", name + "0", "up"},
			[]string{"-n", tftpSpace, "addr", "add", net + "/24", "dev", name + "1"},
			[]string{"-n", tftpSpace, "link", "set", name + "1", "up"})
	}
	return ip(ctx, steps)
}

// startWire starts the wire on the load's CPU and waits for its devices.
func (r *tftpRig) startWire(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append(pinned(r.cpus[1]), self, wireCommand, farDelay.String(), "far0", "far1")
	r.wire = exec.CommandContext(ctx, args[0], args[1:]...)
	r.wire.Stderr = os.Stderr
	r.wire.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := r.wire.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.wire.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

func (r *tftpRig) close() {
	if r.wire != nil && r.wire.Process != nil {
		_ = r.wire.Process.Kill()
		_ = r.wire.Wait()
	}
	_ = exec.Command("ip", "netns", "del", tftpSpace).Run()
}

// A tftpRunning is a candidate that runs.
type tftpRunning struct {
	process
	*tftpServer
	rig *tftpRig
	dir string
}

// start starts a candidate and waits until it serves.
func (r *tftpRig) start(ctx context.Context, c *tftpServer) (*tftpRunning, error) {
	dir, err := r.scratch(c.name)
	if err != nil {
		return nil, err
	}
	s := &tftpRunning{tftpServer: c, rig: r, dir: dir}
	args, err := c.args(r.binary, s.dir, r.root)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(s.dir, "log")
	if err := s.begin(pinned(r.cpus[0]), tftpSpace, args, nil, log); err != nil {
		return nil, err
	}
	for range 40 {
		got, err := r.fetch(ctx, "slow", tftpload.Config{Block: 1468, Timeout: 20 * time.Millisecond})
		if err != nil || got.Done == 1 {
			return s, err
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil { // one that is not there says so at once
			return nil, err
		}
	}
	text, _ := os.ReadFile(log)
	return nil, errors.Join(fmt.Errorf("%s serves nothing: %.600s", c.name, text), s.stop())
}

func (s *tftpRunning) stop() error { return s.rig.leave(&s.process, s.dir) }

// tftpLoadCommand is the argument that makes this program the load, in a process and on a CPU of its own, for one order.
const tftpLoadCommand = "tftp-load"

// A tftpOrder is a command to the load: a line of JSON. Its answer is a tftpload.Result.
type tftpOrder struct {
	File   string // that holds what is fetched
	Config tftpload.Config
}

// fetch has a file fetched over the near wire, unless cfg names another.
func (r *tftpRig) fetch(ctx context.Context, file string, cfg tftpload.Config) (got tftpload.Result, err error) {
	if !cfg.Server.IsValid() {
		cfg.Server = near()
	}
	cfg.Name = "public/" + file
	order := tftpOrder{File: filepath.Join(r.root, "public", file), Config: cfg}
	r.noise.during(func() { err = carryOut(ctx, pinned(r.cpus[1]), tftpLoadCommand, order, &got) })
	return got, err
}

func near() netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(nearAddr), 69) }
func far() netip.AddrPort  { return netip.AddrPortFrom(netip.MustParseAddr(farAddr), 69) }

// runTFTPLoad carries out one order.
func runTFTPLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetGCPercent(-1) // it lives for a moment
	var o tftpOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	var err error
	if o.Config.Want, err = os.ReadFile(o.File); err != nil {
		return err
	}
	got, err := tftpload.Load(ctx, o.Config)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(got)
}
