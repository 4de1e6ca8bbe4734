package dnsd

import (
	"bytes"

	"github.com/miekg/dns"
)

// transferChunk is when a message of a zone transfer is sent and the next begun.
const transferChunk = 16 << 10

// transferAsked reports whether the message in r is a question for a whole zone (AXFR), or for its changes (IXFR).
func (r *request) transferAsked() bool {
	code, reply := r.q.parse(r.w.b)
	return reply && code == noError && r.q.qclass == classIN && (r.q.qtype == typeAXFR || r.q.qtype == typeIXFR)
}

// clientSerial returns the serial that the client of an IXFR has (RFC 1995 section 3).
func (r *request) clientSerial() (uint32, bool) {
	var m dns.Msg
	if r.q.qtype != typeIXFR || m.Unpack(r.w.b) != nil || len(m.Ns) != 1 {
		return 0, false
	}
	soa, ok := m.Ns[0].(*dns.SOA)
	if !ok {
		return 0, false
	}
	return soa.Serial, true
}

// transfer sends a zone (RFC 5936), or what has changed in it (RFC 1995), to those that may have it. It returns the error of send.
func (s *Server) transfer(r *request, send func([]byte) error) error {
	serial, hasSerial := r.clientSerial()
	r.t = s.deps.Table()
	failed := s.authenticate(r, noError)
	r.begin(nil)
	z, at := r.t.zoneOf(&r.q.name, 0)
	why := ""
	switch {
	case failed != noError:
		r.code, why = failed, "its TSIG record is not valid"
	case !r.t.mayTransfer(r.from, r.sig):
		r.code, why = refused, "dns.transfer does not list the client or its key"
	case z == nil || at != 0:
		r.code, why = notAuth, "the lab has no such zone"
	case z.broken:
		r.code, why = servFail, "the zone's file has an error or is missing"
	}
	if r.code != noError {
		s.metrics.refused.Inc()
		s.log.Info("zone transfer refused", keyAddr, r.from, keyZone, nameText(r.q.name.bytes()), keyErr, why)
		s.finish(r)
		return send(r.w.b)
	}
	r.flags = flagAA
	t := transferWriter{s: s, r: r, zone: z, send: send}
	if hasSerial && t.changes(serial) {
		t.flush()
		return t.err
	}
	s.metrics.sent.Inc()
	s.log.Info("zone transfer", keyAddr, r.from, keyZone, z.text)
	t.whole()
	t.flush()
	return t.err
}

// whole writes a whole zone, its SOA first and last.
func (t *transferWriter) whole() {
	soa := t.zone.soaRecord()
	t.record(soa)
	for _, nd := range t.zone.sorted() {
		for _, set := range t.zone.setsOf(nd) {
			if set.rtype != typeSOA {
				t.set(t.zone.nameOf(nd), &set)
			}
		}
	}
	for _, rr := range t.zone.leases {
		t.record([]byte(rr))
	}
	t.record(soa)
}

// changes writes what has changed since a serial. It reports false if that is not known.
func (t *transferWriter) changes(serial uint32) bool {
	z := t.zone
	soa := z.soaRecord()
	if !later(z.serial(), serial) {
		t.record(soa) // the client has it all: RFC 1995 section 2
		return true
	}
	t.s.changes.see(t.s.deps.Table) // an update may be newer than the last look
	all, known := t.s.changes.since(t.r.t, z, serial)
	if !known {
		return false
	}
	t.s.metrics.incremental.Inc()
	t.s.log.Info("incremental zone transfer", keyAddr, t.r.from, keyZone, z.text)
	t.record(soa)
	for i := range all {
		t.record(all[i].from)
		for _, rr := range all[i].removed {
			t.record([]byte(rr))
		}
		t.record(all[i].to)
		for _, rr := range all[i].added {
			t.record([]byte(rr))
		}
	}
	t.record(soa)
	return true
}

// A transferWriter packs records into messages.
type transferWriter struct {
	s    *Server
	r    *request
	zone *zone
	send func([]byte) error
	buf  []byte
	err  error
}

// set adds an RRset.
func (t *transferWriter) set(owner []byte, set *rrset) {
	for rdata := range t.zone.data(set) {
		t.buf = appendRecord(t.buf[:0], owner, set, rdata)
		t.record(t.buf)
	}
}

// record adds a record in wire form, and sends what is full.
func (t *transferWriter) record(rr []byte) {
	w := &t.r.w
	if len(w.b)+len(rr) > transferChunk && w.count[answers] > 0 {
		t.flush()
	}
	w.b = append(w.b, rr...)
	w.count[answers]++
}

func (t *transferWriter) flush() {
	if t.err != nil || t.r.w.count[answers] == 0 {
		return
	}
	t.s.finish(t.r)
	t.err = t.send(t.r.w.b)
	t.r.w.rewind(mark{n: t.r.q.end})
}

// compareNames compares two names label by label, from the root.
func compareNames(x, y []byte) int {
	xs, ys := labelsOf(x), labelsOf(y)
	for i := 1; i <= len(xs) && i <= len(ys); i++ {
		if c := bytes.Compare(xs[len(xs)-i], ys[len(ys)-i]); c != 0 {
			return c
		}
	}
	return len(xs) - len(ys)
}

func labelsOf(wire []byte) [][]byte {
	labels := make([][]byte, 0, 8)
	for i := 0; wire[i] != 0; i += 1 + int(wire[i]) {
		labels = append(labels, wire[i+1:i+1+int(wire[i])])
	}
	return labels
}
