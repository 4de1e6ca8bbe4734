package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// commitBatch is how many leases share a sync at most: enough to make the sync cheap for each, few enough that the first
	// does not wait long for the last.
	commitBatch = 400
	// commitTimeout: a client gives up on a request after about a minute, and has retransmitted long before.
	commitTimeout = 5 * time.Second
	// reclaimEvery is how often leases that ended long ago are looked for, verifiedEvery how often it is stored which machines were verified, and
	// bookStep how many are written at a time.
	reclaimEvery  = time.Minute
	verifiedEvery = 5 * time.Second
	bookStep      = 256

	// maxDatagram is the longest message that is sent: what fits in an Ethernet frame.
	maxDatagram = 1500

	// maxSyncWait is how long a machine that may be answered without the disk waits for it. A healthy disk takes less.
	maxSyncWait = 15 * time.Millisecond
	// minUnstored: a renewal is not answered with less time than this; the client would be gone before it asks again.
	minUnstored = time.Minute
)

// A pending change of a lease waits to be durable, with a copy of its exchange. They are reused.
type pending struct {
	change leases.Change
	x      exchange
	values []byte // what x.req points to
	frame  []byte // the DHCPACK, written before the commit and sent after it; nil: it is written after the commit, too
	buf    [segment.FrameHeadroom + maxDatagram]byte

	unstored time.Duration // the lease time of a DHCPACK that is sent without the disk; 0: none may be sent
	deadline time.Time     // when that is
	answered atomic.Bool   // by the committer or by ackUnstoredLoop: who sets it sends the DHCPACK and may use x
	users    atomic.Int32  // of the two
}

// commit queues a change of a lease without waiting for it. The client is answered when the change is durable. If unstored
// is not 0, it may be acknowledged for so long in any case: it is, when the disk is slow or fails.
func (s *Server) commit(x *exchange, addr netip.Addr, state leases.State, lease, unstored time.Duration) dropReason {
	p := s.free.Get().(*pending)
	p.frame = nil
	if _, sent := x.req.FQDN(); state == leases.Active && (x.host != nil || !sent) { // else the commit decides which name it has in DNS
		p.frame = s.makeReply(x, wire.Ack, addr, lease).Append(p.buf[:segment.FrameHeadroom])
	}
	p.x = *x
	p.values = x.req.CopyTo(&p.x.req, p.values[:0])
	r := &p.x.req
	p.x.reply.Req = r
	start := x.start.Truncate(time.Second) // the store keeps whole seconds
	p.change = leases.Change{
		Subnet: x.scope.network.Subnet, Reserved: x.host.reserved(),
		Lease: leases.Lease{
			Addr: addr, MAC: r.MAC, State: state, Start: start, Expiry: start.Add(lease), Hostname: r.Hostname(), Unnamed: x.host != nil,
			ClientID: r.ClientID, Vendor: string(r.VendorClass), RelayPort: s.relayPortOf(x),
		},
	}
	p.unstored, p.deadline = unstored, x.start.Add(maxSyncWait)
	p.answered.Store(false)
	p.users.Store(2)
	if state != leases.Active {
		s.releases.begin(r.MAC)
	}
	select {
	case s.commits <- p:
	default:
		if state != leases.Active {
			s.releases.end(r.MAC)
		}
		s.free.Put(p)
		if unstored == 0 {
			return dropBusy
		}
		s.ack(x, s.makeReply(x, wire.Ack, addr, unstored), nil)
		return dropNone
	}
	if unstored > 0 {
		select {
		case s.unstored <- p:
			return dropNone
		default: // it waits for the disk
		}
	}
	s.putBack(p)
	return dropNone
}

// putBack ends one use of a pending change.
func (s *Server) putBack(p *pending) {
	if p.users.Add(-1) == 0 {
		s.free.Put(p)
	}
}

// ackUnstoredLoop answers machines whose commit takes longer than maxSyncWait, if they may be answered without it.
func (s *Server) ackUnstoredLoop(ctx context.Context) {
	out := segment.NewSender(1, s.sendFailed)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.unstored: // in the order of their deadlines
			if wait := p.deadline.Sub(s.deps.Now()); wait > 0 && !p.answered.Load() && pause.For(ctx, wait) != nil {
				return
			}
			s.ackWithoutDisk(p, out)
			out.Flush()
			s.putBack(p)
		}
	}
}

// ackWithoutDisk sends the DHCPACK of a change that is not durable yet, or failed, if none was sent.
func (s *Server) ackWithoutDisk(p *pending, out sender) {
	if !p.answered.CompareAndSwap(false, true) {
		return
	}
	defer s.contain()
	x := &p.x
	x.out = out
	s.m.unstored.Inc()
	s.ack(x, s.makeReply(x, wire.Ack, p.change.Addr, p.unstored), nil)
}

// commitLoop makes changes durable, all that wait at once: while one sync runs, the receive loops fill the next batch, so
// machines that all start at once cost a few syncs.
func (s *Server) commitLoop(ctx context.Context) {
	out := segment.NewSender(2*receiveBatch, s.sendFailed)
	var batch []*pending
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.commits:
			batch = s.drain(append(batch[:0], p))
		}
		s.commitAll(ctx, batch, out)
		out.Flush()
		for i, p := range batch {
			s.putBack(p)
			batch[i] = nil
		}
	}
}

// drain adds what else waits to a batch.
func (s *Server) drain(batch []*pending) []*pending {
	for len(batch) < commitBatch {
		select {
		case p := <-s.commits:
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

// commitAll makes a batch durable and queues the replies.
func (s *Server) commitAll(ctx context.Context, batch []*pending, out sender) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	s.changes = s.changes[:0]
	for _, p := range batch {
		s.changes = append(s.changes, &p.change)
	}
	start := s.deps.Now()
	s.deps.Book.Commit(ctx, s.changes)
	took := s.deps.Now().Sub(start)
	s.m.commit.Observe(took.Seconds())
	failed, why := 0, error(nil)
	for _, p := range batch {
		c := &p.change
		if c.Removed.IsValid() {
			s.prober.Forget(c.Removed) // was observed while the machine had a lease of it
		}
		if c.Err != nil && !errors.Is(c.Err, leases.ErrLeased) {
			failed, why = failed+1, c.Err
		}
		s.committed(p, out)
	}
	s.stored.report(s.log, len(batch)-failed, failed, why, start.Add(took))
}

// committed answers a client whose change is durable. If the commit failed there is no reply, except that a machine is
// refused an address that another machine got first, and that one which may be answered without the disk is.
func (s *Server) committed(p *pending, out sender) {
	defer s.contain()
	x, c := &p.x, &p.change
	if c.State != leases.Active {
		s.releases.end(c.MAC)
	}
	if has := c.NameConflict; c.Err == nil && has.Addr.IsValid() {
		s.deps.Events.Record(event.Event{Kind: event.DHCPNameConflict, MAC: c.MAC, Addr: c.Addr, Network: x.scope.network.Name, Detail: c.Hostname, Err: fmt.Sprintf("%s (%s) has it", has.MAC, has.Addr)})
	}
	switch {
	case c.State == leases.Active && c.Err != nil && p.unstored > 0 && !errors.Is(c.Err, leases.ErrLeased):
		s.ackWithoutDisk(p, out)
		return
	case !p.answered.CompareAndSwap(false, true):
		return
	}
	x.out = out
	switch {
	case c.State == leases.Active && c.Err == nil:
		if p.frame == nil {
			s.makeReply(x, wire.Ack, c.Addr, c.Expiry.Sub(c.Start))
		}
		s.ack(x, &x.reply, p.frame)
	case c.State == leases.Active && errors.Is(c.Err, leases.ErrLeased):
		s.nak(x, c.Addr, event.AddressNotFree, "address was leased to another machine")
	case c.Err != nil:
		s.dropped(dropCommit)
	case c.State == leases.Released:
		s.prober.Forget(c.Addr)
		s.record(x, event.Event{Kind: event.DHCPRelease, Addr: c.Addr})
	}
}

// pendingReleases are the machines that have released or declined an address, until that is durable. A machine that asks again meanwhile, as
// dhclient -r and dhclient do, must not read that its lease goes on: it is about to end.
type pendingReleases struct {
	count atomic.Int32 // of machines

	mu       sync.Mutex
	machines map[lab.MAC]int // how many changes of each
}

func (e *pendingReleases) begin(m lab.MAC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.machines == nil {
		e.machines = map[lab.MAC]int{}
	}
	e.machines[m]++
	e.count.Store(int32(len(e.machines)))
}

func (e *pendingReleases) end(m lab.MAC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.machines[m]--; e.machines[m] <= 0 {
		delete(e.machines, m)
	}
	e.count.Store(int32(len(e.machines)))
}

func (e *pendingReleases) has(m lab.MAC) bool {
	if e.count.Load() == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machines[m] > 0
}

// storeErrorEvery is how often a store that fails is logged.
const storeErrorEvery = time.Minute

// storeErrors sums up changes that were not stored. The committer owns it.
type storeErrors struct {
	failed   int  // since the last log line of an error
	total    int  // since the log last said that leases are stored
	open     bool // the log says that they are not
	loggedAt time.Time
}

// report takes the outcome of a batch and logs that the store fails, at most once a minute, and then that it works again. A disk that is
// almost full does both in turn.
func (e *storeErrors) report(log *slog.Logger, stored, failed int, why error, now time.Time) {
	e.failed, e.total = e.failed+failed, e.total+failed
	switch {
	case failed > 0 && now.Sub(e.loggedAt) >= storeErrorEvery:
		log.Error("leases are not stored: new machines get no reply; reservations and renewals are answered", "changes", e.failed, keyErr, why)
		e.failed, e.open, e.loggedAt = 0, true, now
	case failed == 0 && stored > 0 && e.open:
		log.Info("leases are stored again", "not_stored", e.total)
		e.total, e.open = 0, false
	}
}

// reclaimLoop deletes leases that ended long ago.
func (s *Server) reclaimLoop(ctx context.Context) {
	for pause.For(ctx, reclaimEvery) == nil {
		s.inSteps(ctx, "reclaim expired leases", s.deps.Book.Reclaim)
	}
}

// verifiedLoop stores which machines were seen at their addresses.
func (s *Server) verifiedLoop(ctx context.Context) {
	for pause.For(ctx, verifiedEvery) == nil {
		s.inSteps(ctx, "store which machines were seen", s.deps.Book.StoreVerified)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	s.inSteps(last, "store which machines were seen", s.deps.Book.StoreVerified)
}

// inSteps writes to the book, a few leases at a time, so that no client waits long. What fails is tried again by the next call.
func (s *Server) inSteps(ctx context.Context, what string, write func(context.Context, int) (int, error)) {
	for n := bookStep; n == bookStep && ctx.Err() == nil; {
		var err error
		if n, err = write(ctx, bookStep); err != nil {
			if ctx.Err() == nil {
				s.log.Warn(what, keyErr, err)
			}
			return
		}
	}
}
