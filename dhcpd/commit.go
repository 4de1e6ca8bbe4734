package dhcpd

import (
	"context"
	"time"

	"bootlab/dhcpd/segment"
)

const (
	// batchSize is how many leases share a sync at most: enough to make the sync cheap for each, few enough that the first
	// does not wait long for the last.
	batchSize = 400
	// commitTimeout: a client gives up on a request after about a minute, and has asked again long before.
	commitTimeout = 5 * time.Second
)

// A job is a lease to be made durable, and what to do then. finish runs on the committer's goroutine.
type job struct {
	change *change
	finish func(out outbox, err error)
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
	out := segment.NewOutbox(batch, s.sendFailed)
	var jobs []*job
	var changes []*change
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
			changes = append(changes, j.change)
		}
		s.commitBatch(ctx, changes)
		for _, j := range jobs {
			s.finish(j, out)
		}
		out.Flush()
		clear(jobs) // what was answered is not kept alive by the batch
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

func (s *Server) commitBatch(ctx context.Context, changes []*change) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	start := s.deps.Now()
	s.deps.Book.commit(ctx, changes)
	took := s.deps.Now().Sub(start)
	s.m.commit.Observe(took.Seconds())
	for _, c := range changes {
		if c.err != nil {
			s.log.Error("lease not stored, no answer is sent", keyMAC, c.lease.MAC, keyAddr, c.lease.Addr, keyErr, c.err, keyDur, took)
		}
	}
}

func (s *Server) finish(j *job, out outbox) {
	defer s.contain()
	j.finish(out, j.change.err)
}
