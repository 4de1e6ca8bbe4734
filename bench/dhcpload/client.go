package dhcpload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// macPrefix begins every machine's MAC: locally administered. The rest is the machine's number.
const macPrefix = 0x02b0

// Addr returns the address that n is in host order.
func addr(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// A Config says whom to load, and from where. All but the last two must be set.
type Config struct {
	Server   netip.AddrPort
	Sources  []netip.AddrPort // the relay's addresses, one socket each; answers come to them (giaddr)
	First    netip.Addr       // the pool that addresses must come from
	Size     int              // how many addresses it has
	InFlight int              // exchanges under way at once, over all sockets; 0: 32
	Timeout  time.Duration    // until a message is sent again; 0: 1 s
}

// A Client is many machines behind one relay, and remembers what each was given. Its methods must not run side by side.
type Client struct {
	cfg    Config
	first  uint32
	owner  []atomic.Int32 // of each address of the pool: the machine that has it, plus one
	leases []uint32       // by machine; 0: none
	serial atomic.Uint32
}

// New returns a client. The error says which part of the configuration cannot be.
func New(cfg Config) (*Client, error) {
	if len(cfg.Sources) == 0 || !cfg.First.Is4() || cfg.Size <= 0 || !cfg.Server.Addr().Is4() {
		return nil, errors.New("dhcpload: want a server, at least one source, and a pool of IPv4 addresses")
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = 32
	}
	if cfg.InFlight < len(cfg.Sources) || cfg.InFlight/len(cfg.Sources) > 256 {
		return nil, fmt.Errorf("dhcpload: %d in flight over %d sockets, want 1 to 256 each", cfg.InFlight, len(cfg.Sources))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	return &Client{cfg: cfg, first: number(cfg.First), owner: make([]atomic.Int32, cfg.Size)}, nil
}

// Machines are Count machines, numbered from First.
type Machines struct{ First, Count int }

// MAC returns the hardware address of a machine, as people write it.
func MAC(machine int) string {
	b := binary.BigEndian.AppendUint32([]byte{macPrefix >> 8, macPrefix & 0xff}, uint32(machine))
	return net.HardwareAddr(b).String()
}

// Leases returns the address of every machine that was acknowledged one, by MAC.
func (c *Client) Leases() map[string]netip.Addr {
	all := make(map[string]netip.Addr, len(c.leases))
	for machine, a := range c.leases {
		if a != 0 {
			all[MAC(machine)] = addr(a)
		}
	}
	return all
}

// DORA gets each machine an address: DISCOVER, OFFER, REQUEST, ACK. It ends when all have theirs, or with ctx, when the
// exchanges under way have ended; that is no error.
func (c *Client) DORA(ctx context.Context, m Machines) (Result, error) {
	c.leases = append(c.leases, make([]uint32, max(0, m.First+m.Count-len(c.leases)))...)
	all := make([]int, m.Count)
	for i := range all {
		all[i] = m.First + i
	}
	return c.load(ctx, discover, all, m.Count)
}

// Renew renews the leases that machines have from DORA, one after the other and again, count times in all, through the relay.
// Those without one are left out.
func (c *Client) Renew(ctx context.Context, m Machines, count int) (Result, error) {
	var leased []int
	for machine := m.First; machine < min(m.First+m.Count, len(c.leases)); machine++ {
		if c.leases[machine] != 0 {
			leased = append(leased, machine)
		}
	}
	if len(leased) == 0 {
		return Result{}, fmt.Errorf("dhcpload: renew machines %d to %d: none of them has a lease", m.First, m.First+m.Count)
	}
	return c.load(ctx, request, leased, count)
}

// Answers asks again and again, without taking it, for an address, and reports whether the server offered one before ctx ended.
func (c *Client) Answers(ctx context.Context) bool {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(c.cfg.Sources[0]))
	if err != nil {
		return false
	}
	defer conn.Close()
	b := make([]byte, longest)
	m := message{kind: discover, machine: probeMachine, giaddr: number(c.cfg.Sources[0].Addr())}
	for ctx.Err() == nil {
		m.xid = c.serial.Add(1)
		if _, err := conn.WriteToUDPAddrPort(b[:m.put(b)], c.cfg.Server); err != nil {
			return false
		}
		_ = conn.SetReadDeadline(time.Now().Add(askAgain))
		n, _, err := conn.ReadFromUDPAddrPort(b)
		if got, ok := parse(b[:max(n, 0)]); err == nil && ok && got.kind == offer && got.machine == probeMachine {
			return true
		}
	}
	return false
}

const askAgain = 20 * time.Millisecond

// probeMachine only asks whether the server is there.
const probeMachine = 1<<24 - 1

// load runs one socket's loop per source and joins what they saw.
func (c *Client) load(ctx context.Context, first kind, machines []int, count int) (Result, error) {
	w := &work{client: c, first: first, machines: machines, count: int64(count)}
	loops := make([]*loop, 0, len(c.cfg.Sources))
	defer func() {
		for _, l := range loops {
			l.close()
		}
	}()
	for _, source := range c.cfg.Sources {
		l, err := newLoop(w, source, c.cfg.InFlight/len(c.cfg.Sources))
		if err != nil {
			return Result{}, err
		}
		loops = append(loops, l)
	}
	errs := make([]error, len(loops))
	var wg sync.WaitGroup
	start := time.Now()
	for i, l := range loops {
		wg.Go(func() { errs[i] = l.run(ctx) })
	}
	wg.Wait()
	took := time.Since(start)
	return join(loops, took), errors.Join(errs...)
}

// A work is what all sockets share of one load.
type work struct {
	client   *Client
	first    kind // of an exchange: discover, or request for a renewal
	machines []int
	count    int64
	begun    atomic.Int64
}

// next returns the machine of the next exchange, false when there are no more.
func (w *work) next() (int, bool) {
	n := w.begun.Add(1) - 1
	if n >= w.count {
		return 0, false
	}
	return w.machines[n%int64(len(w.machines))], true
}
