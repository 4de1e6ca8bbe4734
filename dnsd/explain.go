package dnsd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// A Question is what Explain answers.
type Question struct {
	Name string     // with or without a final dot
	Type string     // such as AAAA or TYPE65; empty: PTR of an address, else A
	From netip.Addr // the client; who that is decides what is answered
	DO   bool       // with DNSSEC records
}

// An Explanation is an answer and why it is that one.
type Explanation struct {
	Question string   // name and type
	Code     string   // such as NOERROR
	Flags    []string // such as aa
	Records  []string // zone-file lines, by section
	Steps    []Step
}

// A Step is what decided about one name on the way to an answer: a CNAME makes more than one.
type Step struct {
	Name string // that was looked for, with a final dot
	By   string // zone, lease, local, rule, cache, upstream, policy
	Text string // for people
}

// What a step was decided by.
const (
	byZone     = "zone"
	byLease    = "lease"
	byLocal    = "local"
	byRule     = "rule"
	byCache    = "cache"
	byUpstream = "upstream"
	byPolicy   = "policy"
)

// A trace collects the steps of one request.
type trace struct {
	start time.Time
	steps []Step
}

// ErrQuestion is why a question cannot be asked: its name or type is none.
var ErrQuestion = errors.New("not a question")

// Explain answers a question as the client of q would be answered, by the same path, and says why. It changes nothing but the cache of
// the forwarder and is not counted.
func (s *Server) Explain(ctx context.Context, q Question) (Explanation, error) {
	msg, text, err := q.message()
	if err != nil {
		return Explanation{}, err
	}
	r := &request{from: q.From.Unmap(), tcp: true, trace: &trace{start: s.deps.Now()}}
	r.w.b = msg
	switch s.handle(r) {
	case dropped:
		return Explanation{}, fmt.Errorf("%w: it gets no reply", ErrQuestion)
	case pending:
		r = r.clone()
		s.answerForwarded(ctx, r)
	}
	var m dns.Msg
	if err := m.Unpack(r.w.b); err != nil {
		return Explanation{}, fmt.Errorf("read the answer: %w", err)
	}
	e := Explanation{Question: text, Code: dns.RcodeToString[m.Rcode], Steps: r.trace.steps, Records: []string{}, Flags: []string{}}
	for _, f := range []struct {
		set  bool
		name string
	}{{m.Authoritative, "aa"}, {m.Truncated, "tc"}, {m.RecursionAvailable, "ra"}, {m.AuthenticatedData, "ad"}} {
		if f.set {
			e.Flags = append(e.Flags, f.name)
		}
	}
	for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range rrs {
			if rr.Header().Rrtype != dns.TypeOPT {
				e.Records = append(e.Records, strings.ReplaceAll(rr.String(), "\t", " "))
			}
		}
	}
	return e, nil
}

// message returns the query and what it asks, as text.
func (q Question) message() (msg []byte, text string, err error) {
	owner, rtype := dns.Fqdn(q.Name), strings.ToUpper(q.Type)
	if addr, err := netip.ParseAddr(q.Name); err == nil && (rtype == "" || rtype == "PTR") {
		rtype = "PTR"
		owner, _ = dns.ReverseAddr(addr.WithZone("").String())
	}
	if rtype == "" {
		rtype = "A"
	}
	qtype, ok := dns.StringToType[rtype]
	if _, err := fmt.Sscanf(rtype, "TYPE%d", &qtype); !ok && err != nil {
		return nil, "", fmt.Errorf("%w: %q is not a record type", ErrQuestion, q.Type)
	}
	m := new(dns.Msg).SetQuestion(owner, qtype)
	m.SetEdns0(maxUDP, q.DO)
	if msg, err = m.Pack(); err != nil || q.Name == "" {
		return nil, "", fmt.Errorf("%w: %q is not a domain name", ErrQuestion, q.Name)
	}
	binary.BigEndian.PutUint16(msg, 0)
	return msg, owner + " " + rtype, nil
}

// note adds a step about the name that is looked for, if the query is traced.
func (r *request) note(by, text string) {
	if r.trace != nil {
		r.trace.steps = append(r.trace.steps, Step{Name: nameText(r.cur.bytes()), By: by, Text: text})
	}
}

// describe names a zone and where it comes from.
func (z *zone) describe() string {
	kind := "static"
	switch {
	case z.derived:
		kind = "derived"
	case z.source.File != "":
		kind = z.source.File
	}
	if z.source.Pos.File != "" {
		kind += ", " + z.source.Pos.String()
	}
	return fmt.Sprintf("zone %s (%s)", z.text, kind)
}

// traceZone notes which name of a zone has the answer, and what its records were derived from.
func (r *request) traceZone(m match) {
	z := m.zone
	text := z.describe()
	switch {
	case m.dname > 0:
		text += ", DNAME of " + nameText(r.cur.suffix(m.dname))
	case m.cut >= 0:
		text += ", delegation of " + nameText(r.cur.suffix(m.cut))
	default:
		nd := m.node
		owner := z.nameOf(nd)
		if string(owner) != string(r.cur.bytes()) {
			text += ", wildcard " + nameText(owner)
		}
		set := z.set(nd, r.q.qtype)
		if alias := z.set(nd, typeCNAME); set == nil && alias != nil {
			text, set = text+", CNAME", alias
		}
		if set == nil {
			if r.q.qtype != typeANY || nd.sets == 0 { // ANY is answered with one of them (RFC 8482)
				text += ", the name has no such record"
			}
			break
		}
		sources := z.sources()
		rdata, _ := z.next(set.data)
		from := z.followedText(set)
		if from == "" {
			from = sources[sourceKey{string(owner), set.rtype, string(rdata)}]
		}
		if from != "" {
			text += ", from " + from
		}
	}
	r.note(byZone, text)
}

// whyNotForwarded says why a question that no zone answers is not asked elsewhere. An upstream may exist or not.
func (r *request) whyNotForwarded(known bool) string {
	switch {
	case !known && len(r.t.forwards) == 0:
		return "no zone of the lab has it, and there is no forwarder (dns.forward)"
	case !known:
		return "no zone of the lab has it, and no rule of dns.forward_zones or dns.forward"
	case r.flags&flagRA == 0:
		return "only clients of the lab's networks and of dns.allow may use the forwarder"
	}
	return "the query does not ask for recursion (RD)"
}

// traceRule notes which rule of the forwarder holds.
func (r *request) traceRule(servers []upstream, at int) {
	if r.delegated {
		r.note(byRule, "the servers of the delegated zone are asked")
		return
	}
	rule := "dns.forward"
	if at < r.cur.labels {
		rule = "dns.forward_zones, " + nameText(r.cur.suffix(at))
	}
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.String()
	}
	r.note(byRule, rule+": "+strings.Join(names, ", "))
}

// traceReply notes where the forwarder has a reply from.
func (r *request) traceReply(e *cacheEntry, err error, now time.Time) {
	switch {
	case err != nil:
		r.note(byUpstream, err.Error())
	case e.why != "":
		r.note(byUpstream, e.why)
	case e.stale:
		r.note(byCache, fmt.Sprintf("no server answers; expired answer of %s, %v old (RFC 8767)", e.server, now.Sub(e.learned).Round(time.Second)))
	case e.at.Before(r.trace.start):
		r.note(byCache, fmt.Sprintf("answer of %s, %v old", e.server, now.Sub(e.at).Round(time.Second)))
	default:
		r.note(byUpstream, fmt.Sprintf("answer of %s in %v", e.server, now.Sub(r.trace.start).Round(time.Millisecond)))
	}
}
