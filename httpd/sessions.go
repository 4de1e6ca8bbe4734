package httpd

import (
	"cmp"
	"context"
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
	open map[[sha256.Size]byte]*session
}

// A session is one login.
type session struct {
	api.Session
	over context.Context // ends with the session; reads that it admitted end then, too
	end  context.CancelFunc
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
	o := &session{Session: api.Session{From: from, Since: now, Used: now}}
	o.over, o.end = context.WithCancel(context.Background())
	s.open[sha256.Sum256([]byte(cookie))] = o
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
	s.removeLocked(oldest)
}

// removeLocked ends the session of that hash, if there is one.
func (s *sessions) removeLocked(id [sha256.Size]byte) {
	if o := s.open[id]; o != nil {
		o.end()
		delete(s.open, id)
	}
}

// known reports whether a cookie is that of a session, and notes that it is used.
func (s *sessions) known(cookie string) bool { return s.use(cookie) != nil }

// use returns the session whose cookie this is, and notes that it is used; nil: there is none. The comparison is one of hashes, whose timing
// says nothing about the cookie.
func (s *sessions) use(cookie string) *session {
	id, now := sha256.Sum256([]byte(cookie)), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[id]
	switch {
	case o == nil:
		return nil
	case now.Sub(o.Used) > sessionIdle:
		s.removeLocked(id)
		return nil
	}
	o.Used = now
	return o
}

// end ends one session.
func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(sha256.Sum256([]byte(cookie)))
}

// revoke ends all sessions and returns how many they were.
func (s *sessions) revoke() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.open)
	for id := range s.open {
		s.removeLocked(id)
	}
	return n
}

// list returns all sessions, the one used last first.
func (s *sessions) list() []api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]api.Session, 0, len(s.open))
	for _, o := range s.open {
		if s.now().Sub(o.Used) <= sessionIdle {
			all = append(all, o.Session)
		}
	}
	slices.SortFunc(all, func(a, b api.Session) int { return cmp.Or(b.Used.Compare(a.Used), a.From.Compare(b.From)) })
	return all
}
