package httpd

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

const (
	maxSessions = 64             // logins at one time; a further one ends the session that was not used for longest
	sessionIdle = 24 * time.Hour // without a request until a session ends
)

// sessions are the logins of the dashboard. They are in memory only: a restart ends them all. A cookie is kept as its hash.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open map[[sha256.Size]byte]*api.Session
}

// start begins a session and returns its cookie.
func (s *sessions) start(from netip.Addr) (cookie string) {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	cookie = hex.EncodeToString(id[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.open) >= maxSessions {
		s.removeOldestLocked()
	}
	now := s.now()
	s.open[sha256.Sum256([]byte(cookie))] = &api.Session{From: from, Since: now, Used: now}
	return cookie
}

func (s *sessions) removeOldestLocked() {
	var oldest [sha256.Size]byte
	var used time.Time
	for id, o := range s.open {
		if used.IsZero() || o.Used.Before(used) {
			oldest, used = id, o.Used
		}
	}
	delete(s.open, oldest)
}

// known reports whether a cookie is that of a session, and notes that it is used. The comparison is one of hashes, whose timing says
// nothing about the cookie.
func (s *sessions) known(cookie string) bool {
	id, now := sha256.Sum256([]byte(cookie)), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[id]
	switch {
	case o == nil:
		return false
	case now.Sub(o.Used) > sessionIdle:
		delete(s.open, id)
		return false
	}
	o.Used = now
	return true
}

// end ends one session.
func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(cookie)))
}

// revoke ends all sessions and returns how many they were.
func (s *sessions) revoke() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.open)
	clear(s.open)
	return n
}

// list returns all sessions, the one used last first.
func (s *sessions) list() []api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]api.Session, 0, len(s.open))
	for _, o := range s.open {
		if s.now().Sub(o.Used) <= sessionIdle {
			all = append(all, *o)
		}
	}
	slices.SortFunc(all, func(a, b api.Session) int { return cmp.Or(b.Used.Compare(a.Used), a.From.Compare(b.From)) })
	return all
}
