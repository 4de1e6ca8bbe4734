package dnsd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	tableCheck = 500 * time.Millisecond // how often a new table is looked for

	opcodeNotify = 4 << 11 // in the header's second word, RFC 1996

	notifyTries = 5
	notifyWait  = 2 * time.Second // for a reply, and to the second try; doubled for each further one
	notifyAgain = 5 * time.Minute // between the tries after those: the secondary may have been away
	maxNotifies = 64              // at the same time
)

// ServeChanges does what no client waits for, until ctx ends. It notes the changes of every new table, for IXFR, and notifies the secondaries
// about them; at the start about every zone: what they have may be old. It replaces the secret of cookies, refreshes cached answers and
// looks for servers that forward to us. It returns nil.
func (s *Server) ServeChanges(ctx context.Context) error {
	var wg sync.WaitGroup
	defer s.forward.tls.close()
	defer wg.Wait()
	for range refreshWorkers {
		wg.Go(func() { s.panics.Loop(ctx, func() { s.forward.refresh(ctx) }) })
	}
	wg.Go(func() { s.panics.Loop(ctx, func() { s.findLoops(ctx) }) })
	ticker := time.NewTicker(tableCheck)
	defer ticker.Stop()
	running := make(chan struct{}, maxNotifies)
	for {
		func() {
			defer s.recoverPanic()
			s.changes.see(s.deps.Table)
			s.rollCookies(ctx)
			t := s.deps.Table()
			s.notify(t, s.changes.take())
			s.notifyDue(ctx, t, running, &wg)
		}()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// notify queues a NOTIFY to every secondary of zones.
func (s *Server) notify(t *Table, origins []string) {
	for _, to := range t.notify {
		for _, origin := range origins {
			s.notifier.want(notifyKey{origin, to}, time.Now())
		}
	}
}

// notifies reports whether a secondary is notified of changes.
func (t *Table) notifies(to lab.Secondary) bool { return slices.Contains(t.notify, to) }

// notifyMessage returns the message that says that a zone has changed (RFC 1996 section 3.7).
func (z *zone) notifyMessage() []byte {
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	b := binary.BigEndian.AppendUint16(id[:], opcodeNotify|flagAA)
	b = append(b, 0, 1, 0, 1, 0, 0, 0, 0)
	b = append(b, z.origin...)
	b = append(b, 0, typeSOA, 0, classIN)
	return append(b, z.soaRecord()...)
}

// replied sends a NOTIFY, signed with sig if it is not nil, and reports whether its reply came until a deadline.
func (t *Table) replied(ctx context.Context, msg []byte, sig *signature, to netip.AddrPort, until time.Time) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetDeadline(until)
	var mac []byte
	if sig != nil {
		once := *sig // each try has its own time
		msg = once.sign(slices.Clone(msg), time.Now())
		mac = once.mac
	}
	if _, err := conn.Write(msg); err != nil {
		return false
	}
	b := make([]byte, maxUDP)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return false
		}
		if n >= headerLen && slices.Equal(b[:2], msg[:2]) && b[2]&(flagQR>>8) != 0 && (sig == nil || t.authentic(b[:n], mac)) {
			return true
		}
	}
}

// authentic reports whether a reply is signed with a key of ours. mac is that of the request.
func (t *Table) authentic(b, mac []byte) bool {
	var q query
	if q.read(b) != noError || q.tsig == 0 {
		return false
	}
	_, code := t.verify(b, q.tsig, mac, time.Now())
	return code == noError
}

// A notifier knows which secondaries have still to learn of which zones. It is safe for concurrent use.
type notifier struct {
	mu      sync.Mutex
	pending map[notifyKey]*notifyState
	silent  map[notifyKey]bool // did not reply, and that was logged
}

type notifyKey struct {
	origin string
	to     lab.Secondary
}

type notifyState struct {
	tries   int
	due     time.Time
	running bool
}

// want queues a NOTIFY of a zone to a secondary, to be sent at once.
func (n *notifier) want(k notifyKey, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending == nil {
		n.pending, n.silent = map[notifyKey]*notifyState{}, map[notifyKey]bool{}
	}
	st := n.pending[k]
	if st == nil {
		st = &notifyState{}
		n.pending[k] = st
	}
	st.tries, st.due = 0, now
}

// start returns those that are due, at most room of them, and that are not being notified at the moment.
func (n *notifier) start(now time.Time, room int) (due []notifyKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, st := range n.pending {
		if !st.running && !now.Before(st.due) {
			due = append(due, k)
		}
	}
	// First those that were not tried yet: secondaries that are away must not delay others.
	slices.SortFunc(due, func(a, b notifyKey) int { return n.pending[a].tries - n.pending[b].tries })
	due = due[:min(room, len(due))]
	for _, k := range due {
		st := n.pending[k]
		st.running = true
		st.tries++
		st.due = now.Add(notifyPause(st.tries))
	}
	return due
}

// notifyPause is the time from a try to the next one.
func notifyPause(tries int) time.Duration {
	if tries >= notifyTries {
		return notifyAgain
	}
	return notifyWait << (tries - 1)
}

// ended notes how a try went. It reports whether that changed: a secondary does not reply, or replies again.
func (n *notifier) ended(k notifyKey, replied bool) (changed, failed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.pending[k]
	st.running = false
	if replied {
		changed = n.silent[k]
		delete(n.silent, k)
		if st.tries > 0 { // else the zone has changed meanwhile
			delete(n.pending, k)
		}
		return changed, false
	}
	if st.tries != notifyTries {
		return false, false
	}
	changed = !n.silent[k]
	n.silent[k] = true
	return changed, true
}

// forget drops a zone or a secondary that is no more.
func (n *notifier) forget(k notifyKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pending, k)
	delete(n.silent, k)
}

// notifyDue notifies the secondaries that are due, in the background. running bounds how many messages wait for a reply.
func (s *Server) notifyDue(ctx context.Context, t *Table, running chan struct{}, wg *sync.WaitGroup) {
	for _, k := range s.notifier.start(time.Now(), cap(running)-len(running)) {
		running <- struct{}{} // there is room: only this goroutine takes running
		wg.Go(func() {
			defer s.recoverPanic()
			defer func() { <-running }()
			s.notifyOne(ctx, t, k)
		})
	}
}

// notifyOne notifies one secondary of one zone, and waits for its reply.
func (s *Server) notifyOne(ctx context.Context, t *Table, k notifyKey) {
	z := t.zoneNamed(k.origin)
	if z == nil || z.broken || !t.notifies(k.to) {
		s.notifier.forget(k)
		return
	}
	why := "secondary does not reply to NOTIFY: it learns of changes when it next refreshes the zone, or replies again"
	var sig *signature
	replied := false
	if key := t.keyNamed(k.to.Key); key != nil {
		sig = signedWith(key)
	}
	if k.to.Key != "" && sig == nil {
		why = "secondary is not notified: its key cannot be read"
	} else {
		replied = t.replied(ctx, z.notifyMessage(), sig, k.to.Addr, time.Now().Add(notifyWait))
	}
	if ctx.Err() != nil {
		return
	}
	changed, failed := s.notifier.ended(k, replied)
	switch {
	case replied:
		s.metrics.notified.Inc()
	case failed:
		s.metrics.notNotified.Inc()
	}
	switch {
	case changed && replied:
		s.log.Info("secondary replies to NOTIFY again", keyZone, k.origin, keyAddr, k.to.Addr)
	case changed:
		s.log.Warn(why, keyZone, k.origin, keyAddr, k.to.Addr)
	}
}
