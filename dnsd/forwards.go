package dnsd

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// When servers are asked whether they answer, beside the questions of clients.
const (
	repliedWithin = time.Minute     // a server that has not replied for so long
	silentAgain   = 5 * time.Second // one that did not answer
	fewMisses     = 2               // in a row are a server that does not answer; one is a lost packet
)

var errNoServer = errors.New("names no server")

// A ForwardRule is dns.forward or a domain of dns.forward_zones, and whether one of its servers answers.
type ForwardRule struct {
	Domain             string // with a final dot; the root's is dns.forward
	Servers, Answering int
	Since              time.Time // the last answer; with Err when the last server fell silent
	Err                error     // why clients get no answer
}

// Key returns the rule's key in the lab file.
func (r *ForwardRule) Key() string {
	if r.Domain == "." {
		return "dns.forward"
	}
	return "dns.forward_zones." + r.Domain[:len(r.Domain)-1]
}

// Forwards returns the rules by which a table forwards questions, as far as their servers were measured.
func (s *Server) Forwards(t *Table) (rules []ForwardRule) {
	for _, f := range t.forwards {
		if r := s.forward.servers.rule(f); r.Err != nil || r.Answering > 0 {
			rules = append(rules, r)
		}
	}
	return rules
}

// rule returns what is known of the servers of a rule.
func (t *serverTable) rule(f forwardZone) ForwardRule {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := ForwardRule{Domain: nameText(f.domain), Servers: len(f.servers)}
	if r.Servers == 0 {
		r.Err = errNoServer
		return r
	}
	now, silent := t.now(), 0
	var replied, lost time.Time
	var why error
	for _, addr := range f.servers {
		switch s := t.stateLocked(addr); {
		case now.Before(s.loops):
			silent, why = silent+1, errLoop
		case s.misses >= fewMisses:
			silent, why = silent+1, fmt.Errorf("ask %s: %w", addr, s.missed)
			lost = latest(lost, s.lost)
		case !s.replied.IsZero():
			r.Answering++
			replied = latest(replied, s.replied)
		}
	}
	if r.Since = replied; silent == r.Servers {
		r.Since, r.Err = lost, why
	}
	return r
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// noteReply notes whether a server has replied, whatever it was.
func (s *serverState) noteReply(err error, now time.Time) {
	if !isSilence(err) {
		s.replied, s.misses, s.missed = now, 0, nil
		return
	}
	if s.misses == 0 {
		s.lost = now
	}
	s.misses, s.missed = s.misses+1, err
}

// isSilence reports whether an error says that no reply came.
func isSilence(err error) bool {
	_, ofNetwork := errors.AsType[*net.OpError](err)
	return err != nil && (ofNetwork || isTimeout(err))
}

// loopTestDue returns after how long a server is asked again whether it answers.
func (s *serverState) loopTestDue(now time.Time) time.Duration {
	switch {
	case s.misses > 0:
		return silentAgain
	case !s.replied.IsZero() && now.Sub(s.replied) > repliedWithin:
		return repliedWithin
	}
	return loopTestAgain
}

// reportForwards logs when no server of a rule answers any more, and when one does again. silent are the domains of those that were logged.
func (s *Server) reportForwards(silent map[string]bool) {
	for _, r := range s.Forwards(s.deps.Table()) {
		was := silent[r.Domain]
		silent[r.Domain] = r.Err != nil
		switch {
		case r.Err != nil && !was && r.Servers > 0: // that there is none is a warning of the table
			s.log.Warn("no upstream answers: clients get SERVFAIL", "rule", r.Key(), "servers", r.Servers, keyErr, r.Err)
		case r.Err == nil && was:
			s.log.Info("an upstream answers again", "rule", r.Key(), "servers", r.Servers)
		}
	}
}
