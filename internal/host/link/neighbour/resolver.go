package neighbour

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/nd"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/link/rtnetlink"
	"github.com/bootlab/bootlab/internal/lab"
)

// A User is which machine uses an address.
type User uint8

// The users.
const (
	// Elsewhere: the address is behind a router, is this machine's own, or its link has no MACs.
	Elsewhere User = iota
	// Own: the kernel sends to a MAC of the machine, and no other machine answered in its place.
	Own
	// Foreign: another machine uses the address.
	Foreign
	// None: the kernel knows no MAC, and no machine answered.
	None
)

// String returns the user in a word, for tests and logs.
func (v User) String() string {
	return [...]string{"elsewhere", "own", "foreign", "none"}[v]
}

// Found is the evidence for an address.
type Found struct {
	User   User
	MAC    lab.MAC // of the machine, own or foreign; zero else
	Both   bool    // Foreign, and the machine itself answers too
	Silent bool    // Own, by the kernel's entry alone: the machine was asked and did not answer
}

// How long machines have to answer: firmware looks at the network every few milliseconds, a busy one later.
const (
	unicastTries   = 2
	broadcastTries = 3
	answerWait     = 200 * time.Millisecond
)

// A Resolver asks the kernel, and machines by ARP (RFC 826) or neighbour discovery (RFC 4861). It is safe for concurrent use.
type Resolver struct {
	arp   *packet.Socket       // for IPv4; nil: the kernel alone is asked
	nd    *packet.Socket       // for IPv6, likewise
	tftp  *packet.Socket       // for the senders of TFTP requests; nil: they are not known
	conns chan *rtnetlink.Conn // idle ones: to open one for each question takes longer than the question
	wg    sync.WaitGroup

	mu   sync.Mutex
	asks map[ask]*answer

	requests requests
}

// maxIdle bounds the idle netlink sockets. So many questions are rarely asked at a time.
const maxIdle = 4

// Open returns a resolver, which Close ends. With an error, because of a missing privilege, the resolver is valid and asks the kernel alone.
func Open() (*Resolver, error) {
	r := &Resolver{asks: map[ask]*answer{}, conns: make(chan *rtnetlink.Conn, maxIdle)}
	var errARP, errND, errTFTP error
	if r.arp, errARP = packet.Open(unix.ETH_P_ARP, arp.Filter()); errARP == nil {
		r.wg.Go(func() { r.arp.Receive(arp.Size, r.heardARP) })
	}
	if r.nd, errND = packet.Open(unix.ETH_P_IPV6, nd.Filter()); errND == nil {
		r.wg.Go(func() { r.nd.Receive(nd.Size, r.heardND) })
	}
	if r.tftp, errTFTP = packet.Open(unix.ETH_P_IP, rrqFilter()); errTFTP == nil {
		r.wg.Go(func() { r.tftp.Receive(rrqSize, r.requests.received) })
	}
	if err := errors.Join(errARP, errND, errTFTP); err != nil {
		return r, fmt.Errorf("open packet sockets for ARP, neighbour discovery and TFTP: %w", err)
	}
	return r, nil
}

// Close closes the sockets. No Find may be under way.
func (r *Resolver) Close() {
	for range len(r.conns) {
		(<-r.conns).Close()
	}
	for _, socket := range []*packet.Socket{r.arp, r.nd, r.tftp} {
		if socket != nil {
			socket.Close()
		}
	}
	r.wg.Wait()
}

// socket returns by which machines are asked for an address; nil: none is.
func (r *Resolver) socket(addr netip.Addr) *packet.Socket {
	if addr.Is4() {
		return r.arp
	}
	return r.nd
}

// Find returns who uses addr, which belongs to the machine with these MACs. It takes a round trip where the machine answers, and a second
// at most where none does. The error is that the kernel cannot be asked, or knows no route.
//
// The first question goes to the machine alone: to ask all would let the answer of another machine replace the kernel's neighbour entry, and
// break the connections of the machine. All are asked if it does not answer, or where the kernel's entry is another machine's already.
func (r *Resolver) Find(addr netip.Addr, own []lab.MAC) (found Found, err error) {
	err = r.onSegment(addr, func(k kernel, way route) error {
		ours, ethernet, err := k.hardware(way.link)
		if err != nil || !ethernet {
			return err
		}
		before := k.neighbour(way.link, addr)
		answered := r.request(ask{way.link, addr}, sender{ours, way.source}, before, own)
		after := k.neighbour(way.link, addr)
		found = userOf(own, answered, before, answered, after)
		found.Silent = found.User == Own && answered.IsZero() && r.socket(addr) != nil
		return nil
	})
	return found, err
}

// Entry is Find by the kernel's neighbour entry alone: no machine is asked, and it takes microseconds. It says to which machine the kernel
// sends, and is for a machine that was found a moment ago. None is that the kernel has no entry, or that the link has no MACs.
func (r *Resolver) Entry(addr netip.Addr, own []lab.MAC) (found Found, err error) {
	err = r.onSegment(addr, func(k kernel, way route) error {
		found = userOf(own, lab.MAC{}, k.neighbour(way.link, addr))
		return nil
	})
	return found, err
}

// onSegment calls look with the kernel and the way to addr, if no router is on it.
func (r *Resolver) onSegment(addr netip.Addr, look func(k kernel, way route) error) error {
	conn, err := r.conn()
	if err != nil {
		return err
	}
	defer r.idle(conn)
	k := kernel{conn}
	way, err := k.route(addr)
	if err != nil || !way.direct {
		return err
	}
	return look(k, way)
}

// conn returns a netlink socket, which idle takes back.
func (r *Resolver) conn() (*rtnetlink.Conn, error) {
	select {
	case conn := <-r.conns:
		return conn, nil
	default:
		return rtnetlink.Open()
	}
}

func (r *Resolver) idle(conn *rtnetlink.Conn) {
	select {
	case r.conns <- conn:
	default:
		conn.Close()
	}
}

// userOf returns which machine uses an address by the MAC that answered and all that were seen: in the kernel's entry before, in the
// answer, and in the entry after; zero: none.
func userOf(own []lab.MAC, answered lab.MAC, seen ...lab.MAC) Found {
	found := Found{User: None}
	for _, mac := range seen {
		switch {
		case mac.IsZero():
		case !slices.Contains(own, mac):
			return Found{User: Foreign, MAC: mac, Both: slices.Contains(own, answered)}
		default:
			found = Found{User: Own, MAC: mac}
		}
	}
	return found
}

// A sender is who asks: this machine, on one of its interfaces.
type sender struct {
	mac  lab.MAC
	addr netip.Addr
}

// request returns the frame that asks for an address: the machine with that MAC, or everybody if it is zero.
func (s sender) request(to lab.MAC, addr netip.Addr) []byte {
	switch {
	case addr.Is4() && to.IsZero():
		to = arp.Broadcast
	case to.IsZero():
		to = nd.Multicast(addr)
	}
	if addr.Is4() {
		frame := arp.Request(s.mac, s.addr, to, addr)
		return frame[:]
	}
	return nd.Solicitation(s.mac, s.addr, to, addr)
}

// An ask is what is asked for.
type ask struct {
	link int
	addr netip.Addr
}

// An answer is what those wait for who ask for the same address at the same time.
type answer struct {
	own     []lab.MAC
	foreign lab.MAC       // that answered; zero: none yet
	mac     lab.MAC       // valid once done is closed; zero: no answer
	done    chan struct{} // closed by the one who asks
	owned   chan lab.MAC  // an own MAC that answered
}

// request asks machines for an address and returns the MAC that answered: an own one, else a foreign one, else zero.
func (r *Resolver) request(a ask, from sender, known lab.MAC, own []lab.MAC) lab.MAC {
	if r.socket(a.addr) == nil || !from.addr.IsValid() || from.addr.Is4() != a.addr.Is4() {
		return lab.MAC{}
	}
	r.mu.Lock()
	w := r.asks[a]
	if w != nil && slices.Equal(w.own, own) {
		r.mu.Unlock()
		<-w.done
		return w.mac
	}
	w = &answer{own: own, done: make(chan struct{}), owned: make(chan lab.MAC, 1)}
	r.asks[a] = w
	r.mu.Unlock()

	mac := r.await(a, from, known, w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.mac = mac; mac.IsZero() {
		w.mac = w.foreign
	}
	if r.asks[a] == w {
		delete(r.asks, a)
	}
	close(w.done)
	return w.mac
}

// await sends requests until an own MAC answers, or none does in time. A foreign answer does not end the wait: the machine may answer too.
func (r *Resolver) await(a ask, from sender, known lab.MAC, w *answer) lab.MAC {
	timer := time.NewTimer(answerWait)
	defer timer.Stop()
	tries := broadcastTries
	if slices.Contains(w.own, known) {
		tries += unicastTries
	}
	for try := range tries {
		to := lab.MAC{} // everybody
		if slices.Contains(w.own, known) && try < unicastTries {
			to = known
		}
		_ = r.socket(a.addr).Send(a.link, from.request(to, a.addr)) // the next try may succeed
		timer.Reset(answerWait)
		select {
		case mac := <-w.owned:
			return mac
		case <-timer.C:
		}
		if r.foreign(w) {
			break
		}
	}
	return lab.MAC{}
}

func (r *Resolver) foreign(w *answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !w.foreign.IsZero()
}

// heardARP is called for each ARP packet, and takes replies.
func (r *Resolver) heardARP(f packet.Frame) {
	if addr, mac, op, ok := arp.Parse(f.Bytes); ok && op == arp.OpReply {
		r.received(f, addr, mac)
	}
}

// heardND is called for each neighbour advertisement.
func (r *Resolver) heardND(f packet.Frame) {
	if addr, mac, ok := nd.ParseAdvertisement(f.Bytes); ok {
		r.received(f, addr, mac)
	}
}

// received takes an answer that names the MAC of an address. It counts if it was for this machine alone, as the answer to a question is, and if
// the MAC that it names is the one that sent it: else any machine could answer in the name of one that is off.
func (r *Resolver) received(f packet.Frame, addr netip.Addr, mac lab.MAC) {
	if !f.Host || f.Source() != mac {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.asks[ask{f.Link, addr}]
	switch {
	case w == nil:
	case !slices.Contains(w.own, mac):
		w.foreign = mac
	default:
		select {
		case w.owned <- mac:
		default:
		}
	}
}
