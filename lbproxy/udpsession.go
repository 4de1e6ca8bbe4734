package lbproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
)

const (
	// udpRetry is how long the first answer may take before a client's next datagram goes to another backend.
	udpRetry = time.Second
	// udpSilence is how long an answer may take until its absence counts against the backend, or a client asks again: with ejectSilence, a
	// backend that is cut off is ejected within three seconds.
	udpSilence = 1500 * time.Millisecond
	// udpKept is the size of a datagram that is kept until its answer, to be sent to another backend if the first refuses it.
	udpKept = 2048
)

// A udpKey names a session: a client's address and port, and where it sends. Of one-way sessions, which all clients share, it has
// the backend instead.
type udpKey struct {
	socket *udpSocket
	client netip.AddrPort
	local  netip.Addr // to which the client has sent: answers leave from it
	to     *backendState
}

// A udpSession is what a client exchanges with one backend. It has a connected socket, so that no other datagrams reach the
// client, and the kernel reports a backend that does not listen (ICMP port unreachable), or whose machine is not found.
type udpSession struct {
	key      udpKey
	fd       fileDescriptor
	table    *activeTable // that frontend and backend are of
	frontend *frontend
	backend  *backend
	limit    *connlimit.Conn
	used     time.Time // the last datagram
	waits    time.Time // since when an answer is missing, where awaits is true
	asked    int       // datagrams of the client
	answered int
	silent   bool       // was counted against the backend
	ended    bool       // the socket is closed
	first    []byte     // the client's first datagram, while it has no answer; empty: it is too long
	tried    []*backend // backends that have refused it
}

// oneWay reports whether backends send nothing back.
func (s *udpSession) oneWay() bool { return s.key.to != nil }

// awaits reports whether an answer is missing, where it is known how many there are.
func (s *udpSession) awaits() bool {
	return s.frontend.Responses > 0 && s.answered < s.asked*s.frontend.Responses
}

// follow makes the session part of the active table, where its balancer is f. It returns false if that does not have its backend.
func (s *udpSession) follow(t *activeTable, f *frontend) bool {
	if s.table == t {
		return true
	}
	b := f.backendOf(s.backend.state)
	if b == nil {
		return false
	}
	s.table, s.frontend, s.backend = t, f, b
	return true
}

// touch notes a datagram.
func (s *udpSession) touch(now time.Time) {
	if now.Sub(s.used) >= time.Second && s.limit != nil {
		s.limit.Touch() // at the limit the longest-idle one ends first
	}
	s.used = now
}

// A udpOutbox holds the datagrams for one session that are sent together.
type udpOutbox struct {
	sender  *datagram.Sender
	session *udpSession
	data    [udpBatch][]byte
}

// forward sends a client's datagram to the backend of its session.
func (p *udpProxy) forward(t *activeTable, f *frontend, sock *udpSocket, m datagram.Message) {
	client := m.From.Addr().Unmap()
	key := udpKey{socket: sock, client: m.From, local: m.Local}
	var ses *udpSession
	if f.Responses == 0 {
		ses = p.oneWay(t, f, sock, client, nil)
	} else if ses = p.keep(t, f, p.sessions[key], client); ses == nil {
		ses = p.begin(t, f, key, client, nil)
	}
	if ses == nil {
		return
	}
	if !ses.awaits() {
		ses.waits = p.now
	}
	ses.asked++
	ses.touch(p.now)
	if ses.asked == 1 && !ses.oneWay() && len(m.Data) <= udpKept {
		ses.first = append(ses.first[:0], m.Data...)
	}
	p.queue(ses, m.Data)
}

// keep returns a session if it still has a backend that serves; it ends one that has not.
func (p *udpProxy) keep(t *activeTable, f *frontend, ses *udpSession, client netip.Addr) *udpSession {
	if ses == nil {
		return nil
	}
	if !ses.follow(t, f) {
		p.end(ses)
		return nil
	}
	b := ses.backend
	var tried []*backend
	switch waits := ses.awaits() && ses.answered == 0 && p.now.Sub(ses.waits) >= udpRetry; {
	case waits:
		tried = slices.Concat(ses.tried, []*backend{b})
		p.unanswered(ses)
	case !b.health.down.Load() && !b.state.ejected.Load():
		return ses
	}
	other := f.pick(client, tried)
	if other == nil {
		return ses // there is none that is better
	}
	other.state.release()
	if other.state == b.state {
		return ses
	}
	p.end(ses)
	return p.begin(t, f, ses.key, client, tried)
}

// unanswered counts the absence of an answer against the backend of a session, once.
func (p *udpProxy) unanswered(ses *udpSession) {
	if !ses.silent {
		ses.silent = true
		p.s.connectFailed(ses.backend, os.ErrDeadlineExceeded)
	}
}

// oneWay returns the session, shared by all clients, of the backend whose turn it is and that is not in tried; nil: there is none.
func (p *udpProxy) oneWay(t *activeTable, f *frontend, sock *udpSocket, client netip.Addr, tried []*backend) *udpSession {
	b, full := f.pickOrFull(client, tried)
	if b == nil {
		p.reject(f, client, full)
		return nil
	}
	key := udpKey{socket: sock, to: b.state}
	if ses := p.sessions[key]; ses != nil && ses.backend.at(sock.addr.Port()) == b.at(sock.addr.Port()) {
		b.state.release()
		ses.table, ses.frontend, ses.backend = t, f, b
		return ses
	}
	return p.connect(t, f, key, client, b)
}

// errFromBackend refuses a datagram whose source is the address and port of a backend: with a forged one, two backends that answer
// everything would answer each other for ever.
var errFromBackend = errors.New("the client is a backend of the balancer")

// begin returns a new session with a backend that is not in tried; nil: there is none.
func (p *udpProxy) begin(t *activeTable, f *frontend, key udpKey, client netip.Addr, tried []*backend) *udpSession {
	if f.full() {
		p.s.reject(f.Name, rejectLimit, key.client, fmt.Errorf("max_connections (%d)", f.MaxConnections))
		return nil
	}
	from := netip.AddrPortFrom(client, key.client.Port())
	if slices.ContainsFunc(f.backends, func(b backend) bool { return b.at(key.socket.addr.Port()) == from }) {
		p.s.reject(f.Name, rejectNoBackend, key.client, errFromBackend)
		return nil
	}
	tried = slices.Clone(tried)
	for {
		b, full := f.pickOrFull(client, tried)
		if b == nil {
			p.reject(f, client, full)
			return nil
		}
		tried = append(tried, b)
		if ses := p.connect(t, f, key, client, b); ses != nil {
			ses.tried = tried[:len(tried)-1]
			return ses
		}
	}
}

// reject counts a datagram that no backend gets.
func (p *udpProxy) reject(f *frontend, client netip.Addr, full bool) {
	why, err := rejectNoBackend, errNoBackend
	if full {
		why, err = rejectQueueFull, errQueueFull
	}
	p.s.reject(f.Name, why, netip.AddrPortFrom(client, 0), err)
}

// connect returns a session with a backend, which pick has chosen; nil: it has no route.
func (p *udpProxy) connect(t *activeTable, f *frontend, key udpKey, client netip.Addr, b *backend) *udpSession {
	fd, err := connectUDP(b.at(key.socket.addr.Port()))
	if err == nil {
		if err = p.watch(fd); err != nil {
			fd.close()
		}
	}
	if err != nil {
		p.s.dialFailed(b, err)
		return nil
	}
	ses := &udpSession{key: key, fd: fd, table: t, frontend: f, backend: b, used: p.now}
	if !ses.oneWay() {
		ses.limit = p.limit.Add(client, func() { // on this goroutine, by the next Add
			p.s.metrics.evicted.Inc()
			p.end(ses)
		})
	}
	p.sessions[key], p.byFD[fd] = ses, ses
	f.state.add()
	return ses
}

// end closes a session.
func (p *udpProxy) end(ses *udpSession) {
	if p.outbox.session == ses {
		p.flush()
	}
	if ses.ended {
		return
	}
	ses.ended = true
	ses.fd.close()
	delete(p.byFD, ses.fd)
	delete(p.sessions, ses.key)
	if ses.limit != nil {
		ses.limit.Remove()
	}
	ses.backend.state.release()
	ses.frontend.state.remove()
}

// queue sends a datagram with the next flush.
func (p *udpProxy) queue(ses *udpSession, data []byte) {
	if p.outbox.session != ses || p.outbox.sender.Len() == udpBatch {
		p.flush()
	}
	p.outbox.session = ses
	p.outbox.data[p.outbox.sender.Len()] = data
	p.outbox.sender.AddConnected(data)
}

// flush sends what is queued. What a backend refuses, by the answer to an earlier datagram, is sent to another.
func (p *udpProxy) flush() {
	ses := p.outbox.session
	if ses == nil {
		return
	}
	p.outbox.session = nil
	var unsent [][]byte
	var refusal error
	p.outbox.sender.Send(ses.fd, func(i int, err error) {
		if !errors.Is(err, errWouldBlock) { // else it is lost, as in a full buffer of any router
			unsent, refusal = append(unsent, p.outbox.data[i]), err
		}
	})
	if refusal != nil {
		p.refused(ses, refusal, unsent)
	}
}

// refused ends a session whose backend does not listen, and counts that against it; what failed on this machine is lost instead. What the backend has not got, and the client's
// first datagram as long as it has no answer, go to another backend.
func (p *udpProxy) refused(ses *udpSession, err error, unsent [][]byte) {
	if p.s.countFault(err, ses.backend.Addr) {
		drainErrors(int(ses.fd))
		return
	}
	if ses.answered == 0 && len(ses.first) > 0 && ses.asked > len(unsent) {
		unsent = slices.Insert(unsent, 0, ses.first)
	}
	p.s.connectFailed(ses.backend, err)
	p.end(ses)
	if len(unsent) == 0 {
		return
	}
	tried := slices.Concat(ses.tried, []*backend{ses.backend})
	var next *udpSession
	if ses.oneWay() {
		next = p.oneWay(ses.table, ses.frontend, ses.key.socket, netip.Addr{}, tried)
	} else {
		next = p.begin(ses.table, ses.frontend, ses.key, ses.key.client.Addr().Unmap(), tried)
	}
	if next == nil {
		return
	}
	next.asked, next.first, next.tried, next.waits = len(unsent), ses.first, tried, p.now
	ses.frontend.state.metrics.retries.Inc()
	for _, data := range unsent {
		p.queue(next, data)
	}
	p.flush()
}
