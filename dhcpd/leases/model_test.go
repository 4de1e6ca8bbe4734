package leases

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A model is what must be true of the book, written down the slow way.
type model struct {
	*testBook
	rand    *rand.Rand
	pools   []*Pool
	leases  map[netip.Addr]Lease
	offered map[netip.Addr]madeOffer
}

type madeOffer struct {
	to     lab.MAC
	at     time.Time
	shared bool // another machine had an offer of it before
}

func (o madeOffer) valid(now time.Time) bool { return now.Sub(o.at) < OfferHold }

// TestModel does everything to a book in no order, and compares it with the model: no address is offered to two or leased
// to two machines, no machine has two, nothing is lost, and what the book keeps twice agrees.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := &model{
				testBook: newTestBook(t), rand: rand.New(rand.NewPCG(seed, 9)), leases: map[netip.Addr]Lease{}, offered: map[netip.Addr]madeOffer{},
			}
			m.pools = []*Pool{pool(10, 40), NewPool(ip("10.0.0.60"), ip("10.0.0.79"), func(a netip.Addr) bool { return a.As4()[3]%7 == 0 })}
			for step := range 4000 {
				what := m.step()
				if step%5 != 0 {
					continue
				}
				if err := m.check(); err != nil {
					t.Fatalf("step %d, %s: %v", step, what, err)
				}
				if step%50 == 0 {
					m.compare(step)
				}
				if t.Failed() {
					t.Fatalf("step %d, %s", step, what)
				}
			}
		})
	}
}

func (m *model) step() string {
	n, p := m.rand.IntN(60), m.pools[m.rand.IntN(len(m.pools))]
	addr := addrOf(p.first + uint32(m.rand.IntN(p.size)))
	switch roll := m.rand.IntN(100); {
	case roll < 40:
		m.discover(n, p, addr)
		return "discover"
	case roll < 60:
		m.request(n, p, addr)
		return "request"
	case roll < 65:
		return m.end(n, Released)
	case roll < 68:
		return m.end(n, Declined)
	case roll < 70:
		m.Conflict(addr, mac(100), m.clock.Now().Add(time.Duration(m.rand.IntN(3000))*time.Second))
		return "conflict"
	case roll < 72:
		m.reserved(n, addr)
		return "reserved"
	case roll < 74:
		m.Withdraw(mac(n))
		maps.DeleteFunc(m.offered, func(_ netip.Addr, p madeOffer) bool { return p.to == mac(n) })
		return "withdraw"
	case roll < 75:
		m.reopen()
		clear(m.offered)
		return "restart"
	case roll < 76:
		m.pools[0] = pool(10, byte(30+m.rand.IntN(25)))
		if m.rand.IntN(2) == 0 {
			m.Serve(m.pools...)
		}
		return "reload"
	case roll < 77:
		m.clock.Advance(remembered / 10)
		return "some days"
	case roll < 79:
		m.reclaim()
		return "reclaim"
	}
	m.clock.Advance(time.Duration(m.rand.IntN(60_000)) * time.Millisecond)
	return "time"
}

func (m *model) discover(n int, p *Pool, requested netip.Addr) {
	a, _, err := m.Offer(Request{MAC: mac(n), Subnet: subnet, Pool: p, Requested: requested})
	if err != nil {
		if !errors.Is(err, ErrFull) {
			m.t.Error(err)
		}
		return
	}
	if !p.MayGive(a) {
		m.t.Errorf("offered %s, which the pool does not give", a)
	}
	old := m.offered[a]
	shared := old.shared && old.to == mac(n)
	if other := old.valid(m.clock.Now()) && old.to != mac(n); other {
		if free := m.free(p); len(free) > 0 {
			m.t.Errorf("%s is offered to machine %d, and was to %s, while %s is free", a, n, old.to, free[0])
		}
		shared = true
	}
	m.noteOffer(n, a, shared)
}

// free returns the addresses of a pool that nobody has or is offered.
func (m *model) free(p *Pool) (all []netip.Addr) {
	now := m.clock.Now()
	for i := range p.size {
		a := addrOf(p.first + uint32(i))
		l, leased := m.leases[a]
		c, conflict := m.conflicts[p.first+uint32(i)]
		if p.MayGive(a) && !m.offered[a].valid(now) && !(leased && l.State != Released && now.Before(l.Expiry)) && !(conflict && seconds(now) < c.until) {
			all = append(all, a)
		}
	}
	return all
}

// noteOffer records an offer, and checks that no other machine has the address.
func (m *model) noteOffer(n int, a netip.Addr, shared bool) {
	now := m.clock.Now()
	if l, ok := m.leases[a]; ok && l.Live(now) && l.MAC != mac(n) {
		m.t.Errorf("%s is offered to machine %d, and leased to %s", a, n, l.MAC)
	} else if ok && l.State == Declined && now.Before(l.Expiry) {
		m.t.Errorf("%s is offered to machine %d, and declined", a, n)
	}
	maps.DeleteFunc(m.offered, func(_ netip.Addr, p madeOffer) bool { return p.to == mac(n) })
	m.offered[a] = madeOffer{mac(n), now, shared}
}

func (m *model) request(n int, p *Pool, requested netip.Addr) {
	a, ok := m.OfferTo(mac(n))
	if !ok {
		a = requested
	}
	if !m.Decide(mac(n), p, a, Selecting).Free {
		return
	}
	if old := m.offered[a]; old.valid(m.clock.Now()) && old.to != mac(n) && !old.shared {
		m.t.Errorf("machine %d may have %s, which is offered to %s alone", n, a, old.to)
	}
	m.noteOffer(n, a, false)
	c := m.change(n, a.String())
	if m.rand.IntN(2) == 0 {
		c.Hostname, c.RelayPort = fmt.Sprint("host-", m.rand.IntN(20)), fmt.Sprint("port-", n%5)
	}
	c.ClientID = make([]byte, m.rand.IntN(40))
	m.store1(c, nil)
}

// store1 commits a change and notes it.
func (m *model) store1(c *Change, want error) {
	name, unnamed := m.nameFor(c)
	m.commit(c)
	if !errors.Is(c.Err, want) {
		m.t.Errorf("commit of %s to %s: %v, want %v", c.Addr, c.MAC, c.Err, want)
	}
	if c.Err != nil {
		return
	}
	if c.State == Active && (c.Hostname != name || c.Unnamed != unnamed) {
		m.t.Errorf("%s gets the name %q, unnamed %t; want %q, %t", c.MAC, c.Hostname, c.Unnamed, name, unnamed)
	}
	other := netip.Addr{}
	for a, l := range m.leases {
		if l.MAC == c.MAC && l.State != Declined && a != c.Addr {
			other = a
		}
	}
	if other.IsValid() && c.State == Active {
		delete(m.leases, other)
	}
	if m.offered[c.Addr].to == c.MAC {
		delete(m.offered, c.Addr)
	}
	if other.IsValid() && c.State == Released {
		delete(m.leases, c.Addr)
		return
	}
	m.leases[c.Addr] = c.Lease
}

// nameFor returns the host name that a machine gets, and whether another has it.
func (m *model) nameFor(c *Change) (name string, unnamed bool) {
	name = c.Hostname
	now := m.clock.Now()
	for _, l := range m.leases {
		if l.MAC == c.MAC && l.Live(now) && name == "" {
			return l.Hostname, l.Hostname == "" || l.Unnamed
		}
	}
	for _, l := range m.leases {
		unnamed = unnamed || l.MAC != c.MAC && l.Live(now) && !l.Unnamed && l.Hostname == name && name != ""
	}
	return name, unnamed
}

// end is a machine that gives its address back, or finds it in use.
func (m *model) end(n int, state State) string {
	for a, l := range m.leases {
		if l.MAC == mac(n) && (l.Live(m.clock.Now()) || l.State == Declined && state == Released) {
			c := m.change(n, a.String())
			c.State, c.Expiry = state, c.Start
			if state == Declined {
				c.Expiry = c.Start.Add(10 * time.Minute)
			}
			m.store1(c, nil)
			break
		}
	}
	return state.String()
}

func (m *model) reserved(n int, a netip.Addr) {
	c := m.change(n, a.String())
	c.Reserved = true
	m.store1(c, nil)
}

func (m *model) reclaim() {
	if _, err := m.Reclaim(m.t.Context(), 1+m.rand.IntN(100)); err != nil {
		m.t.Error(err)
	}
	for a, l := range m.leases {
		if _, ok := m.known(a); !ok {
			if age := m.clock.Now().Sub(l.Expiry); age < remembered {
				m.t.Errorf("%s is forgotten %s after its end", a, age)
			}
			delete(m.leases, a)
		}
	}
}

// compare holds the book against the model.
func (m *model) compare(step int) {
	now := m.clock.Now()
	for a, want := range m.leases {
		got, ok := m.known(a)
		if !ok || got.MAC != want.MAC || got.State != want.State || got.Hostname != want.Hostname || got.Hostname != "" && got.Unnamed != want.Unnamed || got.RelayPort != want.RelayPort ||
			string(got.ClientID) != string(want.ClientID) || got.Expiry.Unix() != want.Expiry.Unix() {
			m.t.Fatalf("step %d: %s is %+v, want %+v", step, a, got, want)
		}
		if l, ok := m.ByHostname(want.Hostname); want.Live(now) && want.Hostname != "" && !want.Unnamed && (!ok || l.Addr != a) {
			m.t.Errorf("step %d: %s is %s, want %s", step, want.Hostname, l.Addr, a)
		}
		if l, ok := m.ByMAC(want.MAC); want.Live(now) && (!ok || l.Addr != a) {
			m.t.Errorf("step %d: %s of %s is not found", step, a, want.MAC)
		}
	}
	if n := m.slots.len(); n != len(m.leases) {
		m.t.Errorf("step %d: the book has %d leases, want %d", step, n, len(m.leases))
	}
	for _, p := range m.pools {
		for m.wheel.swept < seconds(now) {
			m.Usage(p)
		}
		live, onPort := 0, map[string]int{}
		for a, l := range m.leases {
			if l.Live(now) && p.MayGive(a) {
				live++
				onPort[l.RelayPort]++
			}
		}
		if got, _, _ := m.Usage(p); got != live {
			m.t.Errorf("step %d: %d live, want %d", step, got, live)
		}
		for i := range 5 {
			port := fmt.Sprint("port-", i)
			if got := m.LiveOnRelayPort(p, port); got != onPort[port] {
				m.t.Errorf("step %d: %d behind %s, want %d", step, got, port, onPort[port])
			}
		}
	}
}
