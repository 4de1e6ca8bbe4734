package tftpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// SelfTest is a request for a file that never exists. The answer is an error, as for any such file, but it comes from the
// server's own port, however many transfers run, and the request is neither logged nor counted: with it the daemon asks whether
// its own server answers.
const SelfTest = "\x00\x01bootlab-self-test\x00octet\x00"

// isRequest reports whether a packet is an RRQ or a WRQ, which asks to read or to write (RFC 1350 section 5).
func isRequest(b []byte) bool { return len(b) >= 2 && b[0] == 0 && (b[1] == opRRQ || b[1] == opWRQ) }

// handlePacket handles a packet that arrived at the well-known port.
func (s *Server) handlePacket(ctx context.Context, p packet) {
	p.table = s.deps.Table()
	switch {
	case string(p.data) == SelfTest:
		s.answerSelfTest(p)
	case !p.table.lab.MayReply(p.client.Addr()):
		s.stats.dropped[reasonMalformed].Inc()
	case isRequest(p.data):
		s.request(ctx, p)
	case s.cfg.SinglePort:
		s.deliver(p)
	default:
		// A stray ACK or ERROR gets no reply: two servers could answer each other for ever.
		s.stats.dropped[reasonMalformed].Inc()
	}
}

// answerSelfTest answers SelfTest.
func (s *Server) answerSelfTest(p packet) {
	func() {
		s.mu.Lock() // as every request does: a lock that is never released fails the self test
		defer s.mu.Unlock()
	}()
	reject(p, CodeNotFound, "file not found")
}

// reject sends ERROR from the port that a packet arrived at.
func reject(p packet, code ErrorCode, message string) {
	out := sender{raw: p.conn, client: p.client, source: p.local, out: datagram.NewSender(1)}
	_ = out.write(appendError(nil, code, message), 0)
}

// deliver passes a reply to its transfer, found by the address and port that it came from. A reply to no transfer gets ERROR 5
// (RFC 1350 section 4), so that its client need not wait; an ERROR never does.
func (s *Server) deliver(p packet) {
	r, ok := parseReply(p.data)
	if !ok {
		s.stats.dropped[reasonMalformed].Inc()
		return
	}
	s.mu.Lock()
	t := s.active[p.client]
	s.mu.Unlock()
	if t != nil {
		t.shared.put(r)
		return
	}
	s.stats.dropped[reasonUnknownTID].Inc()
	if r.op != opERROR {
		reject(p, CodeUnknownTID, "unknown transfer")
	}
}

// An origin is why a transfer is started.
type origin int

const (
	received origin = iota // its request has arrived
	repeated               // its request arrived while the transfer before was ending
)

// start starts the transfer that a packet asks for in place of that one, unless another is in progress or there are too many.
func (s *Server) start(ctx context.Context, p packet, why origin, old *transfer) {
	t := &transfer{request: string(p.data), client: p.client, table: p.table, origin: why, started: time.Now(), retries: s.cfg.Retries, unanswered: s.cfg.Unanswered, stats: s.stats}
	inner, cancel := context.WithCancelCause(ctx)
	t.cancel = cancel
	if s.cfg.SinglePort {
		t.shared = newSharedPort(p.conn, p.local, p.client)
		t.transport = t.shared
	}
	if reason := s.admit(t, old); reason != "" {
		s.stats.dropped[reason].Inc()
		cancel(nil)
		if reason == reasonBusy {
			s.noteDropped(t)
		}
		return
	}
	p.transfers.Go(func() {
		err := s.serve(inner, t, p.local)
		s.remove(t)
		if errors.Is(err, errProbe) && t.repeated.Load() && why == received {
			// The request that follows a probe arrived before the ERROR that ended the probe.
			p.data = []byte(t.request)
			s.start(ctx, p, repeated, nil)
		}
	})
}

// admit registers a transfer, in place of another one of its address and port if that is not nil, or returns the reason to drop its
// request. Where there is no slot, a transfer whose client has never answered is evicted: forged requests, or those from closed ports, must
// not lock machines out. Else the client with the most transfers loses its oldest: no client keeps others out.
func (s *Server) admit(t, replaced *transfer) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.active[t.client]
	if old != nil && old != replaced {
		return reasonDuplicate // it has begun meanwhile
	}
	if most := s.cfg.MaxTransfers; int(s.running.Load()) >= most+max(1, most/4) { // evicted faster than they end
		return reasonBusy
	}
	if t.slot = s.slots.Add(t.client.Addr(), t.evict); t.slot == nil {
		return reasonBusy
	}
	t.slot.Measure(t.taken.Load)
	if old != nil {
		old.cancel(errReplaced) // the client has restarted, with the same port
	}
	s.active[t.client] = t
	s.stats.active.Set(float64(s.running.Add(1)))
	return ""
}

func (s *Server) remove(t *transfer) {
	t.cancel(nil)
	t.slot.Remove()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[t.client] == t {
		delete(s.active, t.client)
	}
	s.stats.active.Set(float64(s.running.Add(-1)))
}

// serve answers one request and returns how that ended. A panic in it does not end the process.
func (s *Server) serve(ctx context.Context, t *transfer, local netip.Addr) (err error) {
	defer s.panics.Contain()
	r, err := ParseRequest([]byte(t.request))
	if err != nil {
		s.stats.dropped[reasonMalformed].Inc()
		s.log.Debug("malformed request", "addr", t.client, "err", err)
		return nil
	}
	if t.mac = macOf(r.Name); t.mac.IsZero() {
		t.mac, _ = s.deps.Leases.MACOf(t.table.lab, t.client.Addr())
	}
	if t.transport == nil {
		if t.transport, err = newSocket(ctx, local, t.client, func() int { return int(s.running.Load()) }); err != nil {
			s.log.Error("open socket for transfer", "addr", t.client, "err", err)
			return nil
		}
	}
	defer t.transport.close()
	err = s.prepare(ctx, t, r)
	if err == nil {
		defer t.readAhead.content.close()
		err = t.run(ctx)
	}
	if err == nil {
		s.received(context.WithoutCancel(ctx), t)
	}
	s.finish(t, r, err, time.Since(t.started))
	return err
}

// received reports to the boot service that a client has its script.
func (s *Server) received(ctx context.Context, t *transfer) {
	received := t.readAhead.content.received
	if received == nil || !t.received() {
		return
	}
	err := received(ctx)
	code, refused := codeBy(err)
	t.disowned = refused && code == CodeAccess
	if err != nil && !t.disowned { // that is an event
		s.log.Warn("script served, but the boot was not stored", "addr", t.client, "err", err)
	}
}

// prepare opens what was asked for and negotiates the options. The error is a *refusal, or why the transfer of a script was ended meanwhile.
func (s *Server) prepare(ctx context.Context, t *transfer, r Request) error {
	if !t.table.answers(t.client.Addr()) {
		return &refusal{code: CodeAccess, reason: event.Outside, message: "not in the lab", err: errOutside}
	}
	if r.Write {
		return &refusal{code: CodeAccess, reason: event.BadRequest, message: "read-only server", err: errors.New("a write request: the server is read-only")}
	}
	if r.Mode != "octet" && r.Mode != "netascii" {
		return &refusal{code: CodeIllegal, reason: event.BadRequest, message: "unknown mode", err: fmt.Errorf("mode %q: want octet or netascii", lab.Printable(lab.Shortened(r.Mode, maxText)))}
	}
	target, ok := resolve(r.Name)
	if !ok {
		return &refusal{code: CodeAccess, reason: event.NotServed, message: "access violation", err: errNoSuchPath}
	}
	t.script = target.kind == script
	c, err := s.open(ctx, t.table, target, t.client)
	if gone := context.Cause(ctx); err != nil && t.script && gone != nil {
		return gone // while the script was rendered
	} else if err != nil {
		return err
	}
	l := limits{window: s.cfg.MaxWindow, timeout: s.cfg.Timeout, size: c.size}
	if r.Mode == "netascii" {
		if c, err = netascii(c); err != nil {
			return err
		}
		l.size = -1 // the file's size is not the number of bytes on the wire
	}
	if len(r.Options) > 0 {
		l.block = blockLimit(t.client)
	}
	t.readAhead.content = c
	t.negotiated = negotiate(r.Options, l)
	return nil
}

// finish records how the request ended, and sends an ERROR packet to a client that does not know.
func (s *Server) finish(t *transfer, r Request, err error, took time.Duration) {
	if t.origin == repeated && !t.answered() && t.base > 0 {
		// The client only wanted the size, and had asked for it twice.
		s.stats.dropped[reasonDuplicate].Inc()
		return
	}
	e := event.Event{MAC: t.mac, Addr: t.client.Addr(), Detail: boot.RedactTokens(lab.Printable(lab.Shortened(trimOptionEnd(r.Name), maxText))), Dur: took}
	var refused *refusal
	result := resultFailed
	switch {
	case err == nil:
		result, e.Kind, e.Bytes = resultServed, event.TFTPServed, t.readAhead.content.size
		s.stats.duration.Observe(took.Seconds())
	case errors.Is(err, errProbe):
		result, e.Kind = resultProbe, event.TFTPProbe
	case errors.As(err, &refused) && t.base == 0:
		result, e.Kind, e.Err, e.Reason = resultRefused, event.TFTPRefused, boot.RedactTokens(files.TextOf(refused.err)), refused.reason
	default:
		e.Kind, e.Bytes, e.Size, e.Err, e.Reason = event.TFTPFailed, t.acked(), t.readAhead.content.size, err.Error(), reasonOf(err)
	}
	e.Unverified = !t.received() || t.disowned
	if e.Unverified && t.script && result != resultRefused {
		e.Claimed, e.Reason = true, event.Unacknowledged // anybody can send a request in the machine's name
	}
	s.stats.results[result].Inc()
	s.stats.bytes.Add(float64(e.Bytes))
	if refused == nil || !refused.reported {
		s.deps.Events.Record(e)
	}
	switch _, sentError := errors.AsType[*clientError](err); {
	case result == resultRefused:
		s.sendError(t, refused.code, refused.message)
	case result == resultFailed && !sentError && !errors.Is(err, errReplaced): // then the client's next transfer is in progress
		s.sendError(t, CodeUndefined, "transfer aborted")
	}
}

// reasonOf returns why a transfer failed; empty: for none of the known reasons.
func reasonOf(err error) event.Reason {
	_, sentError := errors.AsType[*clientError](err)
	refused, unread := errors.AsType[*refusal](err)
	switch {
	case unread:
		return refused.reason
	case errors.Is(err, errSilent):
		return event.Stalled
	case errors.Is(err, errEvicted), errors.Is(err, errShared):
		return event.Busy
	case sentError, errors.Is(err, errGone), errors.Is(err, errReplaced):
		return event.Closed
	}
	return ""
}

func (s *Server) sendError(t *transfer, code ErrorCode, message string) {
	b := appendError(nil, code, message)
	if err := t.transport.send(b, len(b)); err != nil {
		s.log.Debug("send error packet", "addr", t.client, "err", err)
	}
}

// The limits of options.
const (
	defaultBlock = 512   // RFC 1350
	minBlock     = 8     // RFC 2348
	maxBlock     = 65464 // RFC 2348
	// maxTimeout is the longest timeout in seconds that is accepted, of the 255 of RFC 2349: a client that is gone, or that means to,
	// would hold its transfer for minutes.
	maxTimeout = 10
	// overhead4 and overhead6 are the bytes of an IP packet that are not the file's: IP, UDP and TFTP headers.
	overhead4 = 20 + 8 + headerLen
	overhead6 = 40 + 8 + headerLen
)

// negotiated are the options of a transfer, as client and server agreed on them.
type negotiated struct {
	block   int // bytes of the file in a packet
	window  int // packets before an ACK (RFC 7440)
	timeout time.Duration
	exact   bool // the client asked for the timeout
	roll    rollover
	oack    []Option // what to acknowledge; empty: nothing was asked for, so no OACK (RFC 2347)
}

// limits are what the server can do for one client.
type limits struct {
	block   int // 0: no limit beyond the protocol's
	window  int
	timeout time.Duration // where the client does not ask for one
	size    int64         // of the file; negative: unknown, as in netascii mode; 0 is not acknowledged
}

// negotiate answers the options of a request (RFC 2347): blksize, windowsize, timeout, tsize, rollover. It acknowledges only what was
// asked for, and never more than was asked for: EDK2 ends the transfer otherwise (Mtftp4Rrq.c). What is unknown or out of range is left out, as if never sent.
func negotiate(options []Option, l limits) negotiated {
	t := negotiated{block: defaultBlock, window: 1, timeout: l.timeout}
	for _, o := range options {
		n, err := strconv.ParseInt(o.Value, 10, 64)
		if err != nil {
			continue
		}
		switch {
		case o.Name == "blksize" && n >= minBlock:
			t.block = int(min(n, maxBlock))
			if l.block > 0 {
				t.block = max(minBlock, min(t.block, l.block))
			}
			t.agree(o.Name, int64(t.block))
		case o.Name == "windowsize" && n >= 1 && n <= 65535:
			t.window = int(min(n, int64(l.window)))
			t.agree(o.Name, int64(t.window))
		case o.Name == "timeout" && n >= 1 && n <= maxTimeout:
			t.timeout, t.exact = time.Duration(n)*time.Second, true
			t.agree(o.Name, n)
		case o.Name == "rollover" && (n == 0 || n == 1): // tftp-hpa's
			t.roll = rollover(n)
			t.agree(o.Name, n)
		case o.Name == "tsize" && n >= 0 && l.size > 0: // curl takes a size of 0 for an error
			t.agree(o.Name, l.size)
		}
	}
	return t
}

func (t *negotiated) agree(name string, value int64) {
	t.oack = append(t.oack, Option{Name: name, Value: strconv.FormatInt(value, 10)})
}
