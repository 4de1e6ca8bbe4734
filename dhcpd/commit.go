package dhcpd

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// commitBatch is how many leases share a sync at most: enough to make the sync cheap for each, few enough that the first
	// does not wait long for the last.
	commitBatch = 400
	// commitTimeout: a client gives up on a request after about a minute, and has retransmitted long before.
	commitTimeout = 5 * time.Second
	// reclaimEvery is how often leases that ended long ago are looked for, reclaimStep how many are deleted at a time.
	reclaimEvery = time.Minute
	reclaimStep  = 256

	// maxDatagram is the longest message that is sent: what fits in an Ethernet frame.
	maxDatagram = 1500
)

// A pending change of a lease waits to be durable, with a copy of its exchange. They are reused.
type pending struct {
	change leases.Change
	x      exchange
	values []byte // what x.req points to
	frame  []byte // the DHCPACK, written before the commit and sent after it
	buf    [segment.FrameHeadroom + maxDatagram]byte
}

// commit queues a change of a lease without waiting for it. The client is answered when the change is durable.
func (s *Server) commit(x *exchange, addr netip.Addr, state leases.State, lease time.Duration) dropReason {
	p := s.free.Get().(*pending)
	if state == leases.Active {
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
			Addr: addr, MAC: r.MAC, State: state, Start: start, Expiry: start.Add(lease), Hostname: r.Hostname(),
			ClientID: r.ClientID, Vendor: string(r.VendorClass), RelayPort: relayPort(r),
		},
	}
	select {
	case s.commits <- p:
		return dropNone
	default:
		s.free.Put(p)
		return dropBusy
	}
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
			s.free.Put(p)
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
	for _, p := range batch {
		if c := &p.change; c.Removed.IsValid() {
			s.prober.Forget(c.Removed) // was observed while the machine had a lease of it
		}
		if c := &p.change; c.Err != nil && !errors.Is(c.Err, leases.ErrTaken) {
			s.log.Error("lease not stored, no reply is sent", keyMAC, c.MAC, keyAddr, c.Addr, keyErr, c.Err, keyDur, took)
		}
		p.x.out = out
		s.committed(p)
	}
}

// committed answers a client whose change is durable. If the commit failed there is no reply, except that a machine is
// refused an address that another machine got first.
func (s *Server) committed(p *pending) {
	defer s.contain()
	x, c := &p.x, &p.change
	switch {
	case c.State == leases.Active && c.Err == nil:
		s.ack(x, &x.reply, p.frame)
	case c.State == leases.Active && errors.Is(c.Err, leases.ErrTaken):
		s.nak(x, c.Addr, "address was leased to another machine")
	case c.Err != nil:
		s.dropped(dropCommit)
	case c.State == leases.Released:
		s.prober.Forget(c.Addr)
		s.record(x, event.Event{Kind: event.DHCPRelease, Addr: c.Addr})
	}
}

// reclaimLoop deletes leases that ended long ago, a few at a time.
func (s *Server) reclaimLoop(ctx context.Context) {
	for pause.For(ctx, reclaimEvery) == nil {
		for n := reclaimStep; n == reclaimStep && ctx.Err() == nil; {
			var err error
			if n, err = s.deps.Book.Reclaim(ctx, reclaimStep); err != nil && ctx.Err() == nil {
				s.log.Warn("reclaim expired leases", keyErr, err)
			}
		}
	}
}
