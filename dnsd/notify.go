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

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

const (
	tableCheck = 500 * time.Millisecond // how often a new table is looked for

	opcodeNotify = 4 << 11 // in the header's second word, RFC 1996

	notifyTries = 5
	notifyWait  = 2 * time.Second // for the first reply; doubled for each further try
	maxNotifies = 64              // at the same time
)

// ServeChanges does what no client waits for, until ctx ends. It notes the changes of every new table, for IXFR, and tells the secondaries
// about them; at the start about every zone: what they have may be old. It refreshes cached answers and looks for servers that forward
// to us. It returns nil.
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
	places := make(chan struct{}, maxNotifies)
	for {
		func() {
			defer s.recoverPanic()
			s.changes.see(s.deps.Table)
			s.notify(ctx, s.deps.Table(), s.changes.take(), places)
		}()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// notify tells every secondary about zones, in the background. places bounds how many messages wait for a reply.
func (s *Server) notify(ctx context.Context, t *Table, origins []string, places chan struct{}) {
	for _, to := range t.notify {
		for _, origin := range origins {
			go func() {
				defer s.recoverPanic()
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-places }()
				s.notifyOne(ctx, t, origin, to)
			}()
		}
	}
}

// notifyOne tells one secondary about one zone until it replies, at most notifyTries times, or until the zone has changed again.
func (s *Server) notifyOne(ctx context.Context, t *Table, origin string, to lab.Secondary) {
	z := t.zoneNamed(origin)
	if z < 0 || t.zones[z].broken {
		return
	}
	msg, serial := t.notifyMessage(z), t.serialOf(&t.zones[z])
	var sig *signature
	if to.Key != "" {
		k := t.keyNamed(to.Key)
		if k == nil {
			s.metrics.notNotified.Inc()
			s.log.Warn("secondary is not notified: its key cannot be read", keyZone, origin, keyAddr, to.Addr, "key", to.Key)
			return
		}
		sig = signedWith(k)
	}
	wait := notifyWait
	for range notifyTries {
		next := time.Now().Add(wait)
		if t.replied(ctx, msg, sig, to.Addr, next) {
			s.metrics.notified.Inc()
			return
		}
		_ = pause.For(ctx, time.Until(next)) // where nobody listens the error comes at once
		now := s.deps.Table()
		if z := now.zoneNamed(origin); ctx.Err() != nil || z < 0 || now.zones[z].broken || now.serialOf(&now.zones[z]) != serial {
			return // somebody else says so, or there is nothing more to say
		}
		wait *= 2
	}
	s.metrics.notNotified.Inc()
	s.log.Warn("secondary does not reply to NOTIFY: it learns of the change when it next refreshes the zone", keyZone, origin, keyAddr, to.Addr)
}

// notifyMessage returns the message that says that a zone has changed (RFC 1996 section 3.7).
func (t *Table) notifyMessage(z int) []byte {
	apex := &t.nodes[t.zones[z].apex]
	set := t.set(apex, typeSOA)
	rdata, _ := t.next(set.data)
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	b := binary.BigEndian.AppendUint16(id[:], opcodeNotify|flagAA)
	b = append(b, 0, 1, 0, 1, 0, 0, 0, 0)
	b = append(b, t.nameOf(apex)...)
	b = append(b, 0, typeSOA, 0, classIN)
	return appendRecord(b, t.nameOf(apex), set, rdata)
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
