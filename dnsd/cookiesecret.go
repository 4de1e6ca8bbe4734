package dnsd

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"
)

// cookieSecretLife is after how long a secret is replaced. RFC 7873 section 7.1 asks for 26 hours at most.
const cookieSecretLife = 24 * time.Hour

// CookieSecrets are the secrets that server cookies are made with (RFC 9018 section 5). Cookies of the previous one are valid until they are
// too old.
type CookieSecrets struct {
	Current  [16]byte  `json:"current"`
	Previous [16]byte  `json:"previous"`
	Since    time.Time `json:"since"` // when Current was made; zero: there is none
}

// Cookies keep the secrets of cookies over restarts.
type Cookies interface {
	// Load returns what was kept; nothing is no error.
	Load(context.Context) (CookieSecrets, error)
	// Keep stores secrets. They are in use once it has returned without an error.
	Keep(context.Context, CookieSecrets) error
}

// newCookieSecret returns a secret.
func newCookieSecret() (secret [16]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// rollCookies takes the kept secrets at its first call, and replaces the current one when its time is over. Without a store, or while it
// fails, the secrets are those of this process.
func (s *Server) rollCookies(ctx context.Context) {
	if s.deps.Cookies == nil {
		return
	}
	now := s.deps.Now()
	have := *s.cookies.Load()
	if !s.cookiesLoaded {
		kept, err := s.deps.Cookies.Load(ctx)
		if err != nil {
			s.warnCookies(err)
			return
		}
		s.cookiesLoaded = true
		if have = kept; !kept.Since.IsZero() {
			s.cookies.Store(&kept)
		}
	}
	if age := now.Sub(have.Since); age >= 0 && age < cookieSecretLife {
		return
	}
	next := CookieSecrets{Current: newCookieSecret(), Previous: s.cookies.Load().Current, Since: now.UTC()}
	if err := s.deps.Cookies.Keep(ctx, next); err != nil {
		s.warnCookies(err)
		return
	}
	s.cookieWarned = false
	s.cookies.Store(&next)
}

// warnCookies logs an error of the store once.
func (s *Server) warnCookies(err error) {
	if !s.cookieWarned {
		s.log.Warn("the secret of DNS cookies is not stored: the present one stays in use", keyErr, err)
	}
	s.cookieWarned = true
}

// checkCookie looks at the cookie of a query and replaces it by the one for the reply.
func (s *Server) checkCookie(q *query, from netip.Addr) cookieState {
	secrets, now := s.cookies.Load(), s.deps.Now()
	return q.checkCookie(&secrets.Current, &secrets.Previous, from, now)
}
