package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/bootlab/bootlab/bench/dhcpload"
)

// loadCommand is the argument that makes this program the load, in a process and on a CPU of its own.
const loadCommand = "dhcp-load"

// An order is a command to the load, a line of JSON; its answer is one outcome.
type order struct {
	Do       string // reset, answers, dora, renew, leases
	Machines dhcpload.Machines
	Count    int
	Limit    time.Duration
}

type outcome struct {
	OK     bool
	Result dhcpload.Result
	Leases map[string]netip.Addr
	Err    string
}

// A loader is the load's process.
type loader struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
	noise noise // while loads ran
}

func startLoader(ctx context.Context, cpu string) (*loader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append(onCPU(cpu), self, loadCommand)
	l := &loader{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	l.cmd.Stderr = os.Stderr
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = json.NewDecoder(out)
	return l, l.cmd.Start()
}

// close ends the process: it ends with its input.
func (l *loader) close() {
	_ = l.in.Close()
	_ = l.cmd.Wait()
}

// do has an order carried out. Its limit bounds it; ctx bounds the process.
func (l *loader) do(ctx context.Context, o order) (out outcome, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		o.Limit = min(o.Limit, time.Until(deadline))
	}
	if err := json.NewEncoder(l.in).Encode(o); err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	if err := l.out.Decode(&out); err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	if out.Err != "" {
		err = errors.New(out.Err)
	}
	return out, errors.Join(err, ctx.Err())
}

func (l *loader) reset(ctx context.Context) error {
	_, err := l.do(ctx, order{Do: "reset"})
	return err
}

func (l *loader) answers(ctx context.Context) (bool, error) {
	out, err := l.do(ctx, order{Do: "answers", Limit: time.Second})
	return out.OK, err
}

func (l *loader) dora(ctx context.Context, m dhcpload.Machines, limit time.Duration) (dhcpload.Result, error) {
	return l.result(ctx, order{Do: "dora", Machines: m, Limit: limit})
}

func (l *loader) renew(ctx context.Context, m dhcpload.Machines, count int, limit time.Duration) (dhcpload.Result, error) {
	return l.result(ctx, order{Do: "renew", Machines: m, Count: count, Limit: limit})
}

func (l *loader) result(ctx context.Context, o order) (r dhcpload.Result, err error) {
	l.noise.during(func() {
		var out outcome
		out, err = l.do(ctx, o)
		r = out.Result
	})
	return r, err
}

func (l *loader) leases(ctx context.Context) (map[string]netip.Addr, error) {
	out, err := l.do(ctx, order{Do: "leases"})
	return out.Leases, err
}

// runLoader carries out orders until there are no more.
func runLoader(ctx context.Context, in io.Reader, out io.Writer) error {
	orders, outcomes := json.NewDecoder(in), json.NewEncoder(out)
	var c *dhcpload.Client
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if c == nil || o.Do == "reset" {
			var err error
			if c, err = newLoad(); err != nil {
				return err
			}
		}
		if err := outcomes.Encode(o.carryOut(ctx, c)); err != nil {
			return err
		}
	}
}

func newLoad() (*dhcpload.Client, error) {
	cfg := dhcpload.Config{
		Server: netip.AddrPortFrom(netip.MustParseAddr(dhcpAddress), 67), First: netip.MustParseAddr(poolFirst), Size: poolSize,
	}
	for _, a := range relays() {
		cfg.Sources = append(cfg.Sources, netip.AddrPortFrom(netip.MustParseAddr(a), 67))
	}
	return dhcpload.New(cfg)
}

func (o *order) carryOut(ctx context.Context, c *dhcpload.Client) (out outcome) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	var err error
	switch o.Do {
	case "answers":
		out.OK = c.Answers(ctx)
	case "dora":
		out.Result, err = c.DORA(ctx, o.Machines)
	case "renew":
		out.Result, err = c.Renew(ctx, o.Machines, o.Count)
	case "leases":
		out.Leases = c.Leases()
	}
	if err != nil {
		out.Err = err.Error()
	}
	return out
}
