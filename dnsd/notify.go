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
