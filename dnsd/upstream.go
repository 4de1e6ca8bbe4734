package dnsd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/miekg/dns"
)

var (
	errTruncated = errors.New("reply is truncated")
	errCase      = errors.New("reply spells the name differently")
	errMismatch  = errors.New("reply is to another question")
	errBare      = errors.New("reply is an error without the question")
	errPartial   = errors.New("reply does not hold the records that its header counts")
	errLame      = errors.New("refers to other servers instead of an answer")
)

// A queryStyle is what of the protocol a server is trusted to understand.
type queryStyle struct {
	edns  bool // RFC 6891
	mixed bool // random letter case, which a reply must repeat (0x20)
	pad   bool // to a multiple of 128 octets (RFC 8467), where only its length shows what a query asks
}

// exchange asks one server: over UDP first and over TCP where the reply is truncated, spells the name differently or is an error without
// the name, which is easier to forge. A server that does not know EDNS, or changes the case of letters and has no TCP, is asked once more
// without; known is what it did before.
func (f *forwarder) exchange(ctx context.Context, q upstreamQuery, server upstream, known *serverState) (*cacheEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, f.try)
	defer cancel()
	now := f.now()
	style := queryStyle{edns: now.After(known.plain), mixed: now.After(known.sameCase)}
	if server.tls != "" {
		return f.exchangeTLS(ctx, q, server, style)
	}
	e, err := q.exchangeOver(ctx, "udp", server, style)
	if style.edns && rejectsEDNS(err) {
		forgeable := errors.Is(err, errBare) // it says nothing about the next question
		style.edns = false
		if e, err = q.exchangeOver(ctx, "udp", server, style); err == nil && !forgeable {
			f.servers.update(server, func(s *serverState, now time.Time) { s.plain = now.Add(habitsKept) })
		}
	}
	if !errors.Is(err, errTruncated) && !errors.Is(err, errCase) && !errors.Is(err, errBare) {
		return e, err
	}
	byTCP, cancelTCP := context.WithTimeout(ctx, f.try/2)
	defer cancelTCP()
	e, errTCP := q.exchangeOver(byTCP, "tcp", server, style)
	if errTCP == nil || errors.Is(err, errTruncated) {
		return e, errTCP
	}
	style.mixed = false // a new ID and a new port, which a forger would have to guess again
	if e, err = q.exchangeOver(ctx, "udp", server, style); err == nil {
		f.servers.update(server, func(s *serverState, now time.Time) { s.sameCase = now.Add(habitsKept) })
	}
	return e, err
}

// rejectsEDNS reports whether a reply is one of those that servers without EDNS send (RFC 6891 section 7).
func rejectsEDNS(err error) bool {
	code, ok := errors.AsType[*rcodeError](err)
	return ok && (code.code == dns.RcodeFormatError || code.code == dns.RcodeNotImplemented)
}

// exchangeOver asks a server over one transport, from a random port.
func (q *upstreamQuery) exchangeOver(ctx context.Context, network string, server upstream, style queryStyle) (*cacheEntry, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	msg := q.message(style)
	var reply []byte
	if network == "udp" {
		reply, err = exchangeUDP(conn, msg)
	} else {
		reply, err = exchangeTCP(conn, msg)
	}
	if err != nil {
		return nil, err
	}
	return q.read(reply)
}

// message returns the message to send. The ID, the port and the case of the name's letters are what an attacker who does not
// see it would have to guess (RFC 5452).
func (q *upstreamQuery) message(style queryStyle) []byte {
	var random [2 + maxName]byte
	_, _ = rand.Read(random[:2+q.name.n]) // never fails
	flags := uint16(0)
	if q.cut == nil {
		flags |= flagRD | flagAD // with AD it says whether it has verified the answer: RFC 6840 section 5.7
	}
	if q.cd {
		flags |= flagCD
	}
	b := append(make([]byte, 0, headerLen+q.name.n+4+optLen), random[0], random[1])
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, q.name.bytes()...)
	if style.mixed {
		mixCase(b[headerLen:], random[2:])
	}
	b = append(b, byte(q.qtype>>8), byte(q.qtype), 0, classIN)
	if !style.edns {
		return b
	}
	b[11] = 1
	do := byte(0)
	if q.do {
		do = 0x80
	}
	b = append(b, 0, 0, typeOPT, maxUDP>>8, maxUDP&0xff, 0, 0, do, 0, 0, 0)
	if style.pad {
		n := (paddedTo - (len(b)+4)%paddedTo) % paddedTo
		b[len(b)-1] = byte(4 + n)
		b = append(append(b, 0, optPadding, 0, byte(n)), make([]byte, n)...)
	}
	return b
}

// mixCase makes letters of a name capital where bits says so.
func mixCase(wire, bits []byte) {
	for off := 0; off < len(wire) && wire[off] != 0; off += 1 + int(wire[off]) {
		for i := off + 1; i <= off+int(wire[off]); i++ {
			if 'a' <= wire[i] && wire[i] <= 'z' && bits[i]&1 != 0 {
				wire[i] -= 'a' - 'A'
			}
		}
	}
}

// exchangeUDP sends a query and returns the first reply to it. A reply to another query is skipped.
func exchangeUDP(conn net.Conn, q []byte) ([]byte, error) {
	if _, err := conn.Write(q); err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return nil, err
		}
		err = check(q, b[:n])
		switch {
		case err == nil && b[2]&(flagTC>>8) != 0:
			return nil, errTruncated
		case errors.Is(err, errBare):
			return nil, errors.Join(errBare, &rcodeError{int(b[3] & 0xf)})
		case !errors.Is(err, errMismatch):
			return b[:n], err
		}
	}
}

func exchangeTCP(conn net.Conn, q []byte) ([]byte, error) {
	if _, err := conn.Write(framed(q)); err != nil {
		return nil, err
	}
	b, err := readFramed(conn)
	if err != nil {
		return nil, err
	}
	return b, checkStream(q, b)
}

// checkStream is check for a stream, which cannot be forged by guessing.
func checkStream(q, reply []byte) error {
	if err := check(q, reply); errors.Is(err, errMismatch) {
		return err
	}
	return nil
}

// framed returns a message as it is sent in a stream (RFC 1035 section 4.2.2).
func framed(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(msg)), uint16(len(msg))), msg...)
}

func readFramed(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// check reports whether a message is the reply to a query.
func check(q, reply []byte) error {
	end := headerLen + wireLen(q[headerLen:]) + 4
	if len(reply) < headerLen || reply[0] != q[0] || reply[1] != q[1] || reply[2]&(flagQR>>8) == 0 {
		return errMismatch
	}
	if binary.BigEndian.Uint16(reply[4:]) == 0 {
		switch reply[3] & 0xf {
		case dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeRefused: // it has not looked at the question
			return errBare
		}
		return errMismatch
	}
	switch {
	case len(reply) < end || reply[4] != 0 || reply[5] != 1 || !bytes.EqualFold(reply[headerLen:end], q[headerLen:end]):
		return errMismatch
	case !bytes.Equal(reply[headerLen:end], q[headerLen:end]):
		return errCase
	}
	return nil
}

// read makes an entry of a reply. What the codec makes of bad bytes stays in here. The letters' case was our own secret: names that
// are compressed to the question's get back the case that was asked for.
func (q *upstreamQuery) read(reply []byte) (e *cacheEntry, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, fmt.Errorf("unpack the reply: %v", p)
		}
	}()
	if len(reply) >= headerLen+q.name.n && bytes.EqualFold(reply[headerLen:headerLen+q.name.n], q.name.bytes()) {
		copy(reply[headerLen:], q.name.bytes())
	}
	var m dns.Msg
	if err := m.Unpack(reply); err != nil {
		return nil, fmt.Errorf("unpack the reply: %w", err)
	}
	if e, err = q.newEntry(&m); err == nil && !isWhole(reply) { // an error may have the counts of the query that it was made of
		return nil, errPartial
	}
	return e, err
}

// isWhole reports whether a message holds the records that its header counts, of which the codec takes as many as there are. Octets behind
// them are ignored, as by other resolvers, except where they are all that there is.
func isWhole(b []byte) bool {
	count := func(at int) int { return int(binary.BigEndian.Uint16(b[at:])) }
	off := headerLen + wireLen(b[headerLen:]) + 4
	for range count(6) + count(8) + count(10) {
		h, ok := parseHeader(b, off)
		if !ok {
			return false
		}
		off = h.end
	}
	return off == len(b) || count(6)+count(8) > 0
}
