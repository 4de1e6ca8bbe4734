package bootload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Config describes machines and servers. All fields but Limit are required.
type Config struct {
	Server   netip.Addr
	Relay    netip.Addr // an address of this machine, on which it may have port 67: answers of DHCP come to it
	Machines []Machine
	Sizes    Sizes
	Limit    time.Duration // for all machines together; 0: 2 minutes
}

// A Machine is one of the rack. This machine must have its address already.
type Machine struct {
	MAC  string
	Addr netip.Addr // that it must be given
}

// Sizes are how long the files must be, in bytes: a machine that gets another length has failed.
type Sizes struct{ Program, Kernel, Initrd int64 }

// Run switches all machines on at once and returns when the last has finished or failed, or with ctx. What machines met is in the
// result; the error is that the rack could not be set up.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if !cfg.Server.Is4() || !cfg.Relay.Is4() || len(cfg.Machines) == 0 {
		return Result{}, errors.New("bootload: want a server, a relay and machines")
	}
	if cfg.Limit == 0 {
		cfg.Limit = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Limit)
	defer cancel()
	relay, err := newRelay(cfg.Server, cfg.Relay)
	if err != nil {
		return Result{}, err
	}
	defer relay.close()
	walks := make([]*walk, len(cfg.Machines))
	for i, m := range cfg.Machines {
		mac, err := net.ParseMAC(m.MAC)
		if err != nil {
			return Result{}, fmt.Errorf("bootload: %w", err)
		}
		walks[i] = &walk{relay: relay, mac: mac, addr: m.Addr, sizes: cfg.Sizes, sink: make([]byte, 256<<10)}
	}
	used, start := cpu(), time.Now()
	var wg sync.WaitGroup
	for _, w := range walks {
		wg.Go(func() { w.boot(ctx, start) })
	}
	wg.Wait()
	r := sum(walks)
	r.CPU = cpu() - used
	return r, nil
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Serve reads a Config from in, runs it and writes the Result to out, both as JSON: the load as a process of its own.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var cfg Config
	if err := json.NewDecoder(in).Decode(&cfg); err != nil {
		return fmt.Errorf("bootload: read what to do: %w", err)
	}
	result, err := Run(ctx, cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// A walk is one machine on its way.
type walk struct {
	relay *relay
	mac   net.HardwareAddr
	addr  netip.Addr
	sizes Sizes
	sink  []byte // what is dropped; the kernel writes nothing to it

	lease  lease
	script script
	http   *connection // iPXE's

	again   int // messages sent again
	bytes   int64
	reached []time.Duration // by stage, since the start; those that it came to
	failed  string          // the stage that did not work
	err     error
}

// stages are the steps of a boot, in order.
func stages() []stage {
	return []stage{
		{"firmware's lease", (*walk).firmware},
		{"program", (*walk).program},
		{"iPXE's lease", (*walk).ipxe},
		{"script", (*walk).fetchScript},
		{"kernel", (*walk).kernel},
		{"initrd", (*walk).initrd},
		{"document", (*walk).document},
		{"done", (*walk).done},
	}
}

type stage struct {
	name string
	do   func(*walk, context.Context) error
}

func (w *walk) boot(ctx context.Context, start time.Time) {
	defer func() { w.http.close() }()
	for _, s := range stages() {
		if err := s.do(w, ctx); err != nil {
			w.failed, w.err = s.name, err
			return
		}
		w.reached = append(w.reached, time.Since(start))
	}
}
