package dnsd

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// transferChunk is when a message of a zone transfer is sent and the next begun.
const transferChunk = 16 << 10

// transferAsked reports whether the message in r is a question for a whole zone. An IXFR is answered as an AXFR, which
// RFC 1995 section 4 allows.
func (r *request) transferAsked() bool {
	code, reply := r.q.parse(r.w.b)
	return reply && code == noError && r.q.qclass == classIN && (r.q.qtype == typeAXFR || r.q.qtype == typeIXFR)
}

// transfer sends a whole zone (RFC 5936), to those that may have it. It returns the error of send.
func (s *Server) transfer(r *request, send func([]byte) error) error {
	r.t = s.deps.Table()
	r.begin(nil)
	z, at := r.t.zoneOf(&r.q.name, 0)
	switch {
	case !r.t.mayTransfer(r.from):
		r.code = refused
	case z < 0 || at != 0:
		r.code = notAuth
	case r.t.zones[z].broken:
		r.code = servFail
	}
	if r.code != noError {
		s.metrics.refused.Inc()
		s.log.Info("zone transfer refused", keyAddr, r.from, keyZone, nameText(r.q.name.bytes()))
		s.finish(r)
		return send(r.w.b)
	}
	s.metrics.sent.Inc()
	s.log.Info("zone transfer", keyAddr, r.from, keyZone, r.t.zones[z].text)
	r.flags = flagAA
	t := transferWriter{s: s, r: r, send: send}
	apex := &r.t.nodes[r.t.zones[z].apex]
	soa := r.t.set(apex, typeSOA)
	t.set(r.t.nameOf(apex), soa)
	for _, i := range r.t.sorted(z) {
		nd := &r.t.nodes[i]
		for j := range r.t.sets[nd.first : nd.first+uint32(nd.sets)] {
			if set := &r.t.sets[nd.first+uint32(j)]; set.rtype != typeSOA {
				t.set(r.t.nameOf(nd), set)
			}
		}
	}
	t.set(r.t.nameOf(apex), soa)
	t.flush()
	return t.err
}

// A transferWriter packs records into messages.
type transferWriter struct {
	s    *Server
	r    *request
	send func([]byte) error
	err  error
}

// set adds an RRset, and sends what is full.
func (t *transferWriter) set(owner []byte, set *rrset) {
	off := set.data
	for range set.n {
		var rdata []byte
		rdata, off = t.r.t.next(off)
		if len(t.r.w.b)+len(owner)+10+len(rdata) > transferChunk && t.r.w.count[answers] > 0 {
			t.flush()
		}
		w := &t.r.w
		w.b = append(w.b, owner...)
		w.b = append(w.b, byte(set.rtype>>8), byte(set.rtype), 0, classIN)
		w.b = binary.BigEndian.AppendUint32(w.b, set.ttl)
		w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(rdata)))
		w.b = append(w.b, rdata...)
		w.count[answers]++
	}
}

func (t *transferWriter) flush() {
	if t.err != nil || t.r.w.count[answers] == 0 {
		return
	}
	t.s.finish(t.r)
	t.err = t.send(t.r.w.b)
	t.r.w.rewind(mark{n: t.r.q.end})
}

// sorted returns the nodes of a zone in canonical order (RFC 4034 section 6.1).
func (t *Table) sorted(z int) []int {
	var order []int
	for i := range t.nodes {
		if int(t.nodes[i].zone) == z {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int { return compareNames(t.nameOf(&t.nodes[x]), t.nameOf(&t.nodes[y])) })
	return order
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
