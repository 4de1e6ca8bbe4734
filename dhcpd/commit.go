package dhcpd

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// batchSize is how many leases share a sync at most: enough to make the sync cheap for each, few enough that the first
	// does not wait long for the last.
	batchSize = 400
	// commitTimeout: a client gives up on a request after about a minute, and has asked again long before.
	commitTimeout = 5 * time.Second
	// reclaimEvery is how often leases that ended long ago are looked for, reclaimStep how many go at a time.
	reclaimEvery = time.Minute
	reclaimStep  = 256
)

// A jobKind says what follows a commit.
type jobKind uint8

const (
	jobGrant   jobKind = iota // the acknowledgement
	jobRelease                // the news
	jobSilent
)

// A job is a lease to be made durable, and its request, copied out of the packet loop's hands. Jobs are used again.
type job struct {
	change leases.Change
	kind   jobKind
	in     inbound
	frame  []byte // the acknowledgement, written before the commit and sent after it
	buf    [segment.FrameHeadroom + maxDatagram]byte
}

// maxDatagram is the longest message that is sent: what fits an Ethernet frame.
const maxDatagram = 1500

func newJobs() *sync.Pool { return &sync.Pool{New: func() any { return new(job) }} }

// newJob takes down what is to be stored. The store keeps whole seconds.
func (s *Server) newJob(x *exchange, addr netip.Addr, state leases.State, d time.Duration, kind jobKind) *job {
	j := s.free.Get().(*job)
	in := x.in
	j.kind = kind
	j.in.iface, j.in.port, j.in.from, j.in.local, j.in.sock = in.iface, in.port, in.from, in.local, in.sock
	j.in.data = append(j.in.data[:0], in.data...)
	j.in.x = *x
	j.in.x.in = &j.in
	_ = j.in.x.req.Parse(j.in.data) // it was read before: now its parts lie in the copy
	j.in.x.reply = wire.Reply{}
	start := x.start.Truncate(time.Second)
	r := &j.in.x.req
	j.change = leases.Change{
		Subnet: x.scope.network.Subnet, Reserved: x.res != nil,
		Lease: leases.Lease{
			Addr: addr, MAC: r.MAC, State: state, Start: start, Expiry: start.Add(d), Hostname: r.Hostname(),
			ClientID: r.ClientID, Vendor: string(r.VendorClass), Line: lineOf(r),
		},
	}
	if kind == jobGrant {
		j.frame = s.answer(&j.in.x, wire.Ack, addr, d).Append(j.buf[:segment.FrameHeadroom])
	}
	return j
}

// enqueue hands a job to the committer without waiting.
func (s *Server) enqueue(j *job) dropReason {
	select {
	case s.jobs <- j:
		return dropNone
	default:
		return dropBusy
	}
}

// commitLoop makes leases durable, all that wait at once: while one sync runs, the packet loops fill the next batch, so a
// boot storm costs a few syncs.
func (s *Server) commitLoop(ctx context.Context) {
	out := segment.NewOutbox(2*batch, s.sendFailed)
	var jobs []*job
	var changes []*leases.Change
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-s.jobs:
			jobs = append(jobs[:0], j)
		}
		jobs = s.drain(jobs)
		changes = changes[:0]
		for _, j := range jobs {
			changes = append(changes, &j.change)
		}
		s.commitBatch(ctx, changes)
		for _, j := range jobs {
			s.finish(j, out)
		}
		out.Flush()
		for i, j := range jobs {
			s.free.Put(j)
			jobs[i] = nil
		}
	}
}

func (s *Server) drain(jobs []*job) []*job {
	for len(jobs) < batchSize {
		select {
		case j := <-s.jobs:
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
	return jobs
}

func (s *Server) commitBatch(ctx context.Context, changes []*leases.Change) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	start := s.deps.Now()
	s.deps.Book.Commit(ctx, changes)
	took := s.deps.Now().Sub(start)
	s.m.commit.Observe(took.Seconds())
	for _, c := range changes {
		if c.Err != nil && !errors.Is(c.Err, leases.ErrTaken) {
			s.log.Error("lease not stored, no answer is sent", keyMAC, c.MAC, keyAddr, c.Addr, keyErr, c.Err, keyDur, took)
		}
	}
}

// finish does what waited for the commit.
func (s *Server) finish(j *job, out outbox) {
	defer s.contain()
	j.in.out = out
	why, err := dropNone, j.change.Err
	switch {
	case j.kind == jobGrant:
		why = s.granted(j, err)
	case err != nil:
		why = dropCommit
	case j.kind == jobRelease:
		s.prober.Forget(j.change.Addr)
		s.record(&j.in.x, event.Event{Kind: event.DHCPRelease, Addr: j.change.Addr})
	}
	if why != dropNone {
		s.m.dropped[why].Inc()
	}
}

// reclaimLoop lets go of leases that ended long ago, a few at a time.
func (s *Server) reclaimLoop(ctx context.Context) {
	for pause.For(ctx, reclaimEvery) == nil {
		for n := reclaimStep; n == reclaimStep && ctx.Err() == nil; {
			var err error
			if n, err = s.deps.Book.Reclaim(ctx, reclaimStep); err != nil && ctx.Err() == nil {
				s.log.Warn("let go of old leases", keyErr, err)
			}
		}
	}
}
