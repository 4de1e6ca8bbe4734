package dnsd

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// secretStore keeps cookie secrets over restarts, or fails.
type secretStore struct {
	kept CookieSecrets
	err  error
}

func (s *secretStore) Load(context.Context) (CookieSecrets, error) { return s.kept, s.err }

func (s *secretStore) Keep(_ context.Context, c CookieSecrets) error {
	if s.err == nil {
		s.kept = c
	}
	return s.err
}

// TestCookieSecretIsKept: a cookie is valid after a restart and after the secret was rolled, once; not with a secret from before that.
func TestCookieSecretIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &secretStore{}
		start := func() *Server {
			s := newServer(t, compile(t, openshift()), nil)
			s.deps.Cookies = store
			s.rollCookies(t.Context())
			return s
		}
		state := func(s *Server, cookie string) cookieState {
			q := query{}
			q.cookieLen = copy(q.cookie[:], unhex(t, cookie))
			return s.checkCookie(&q, netip.MustParseAddr(outside))
		}
		cookie := func(s *Server) string {
			return cookieOf(exchange(t, s, withCookie("api.mycluster.example.com. A", "0102030405060708"), outside))
		}
		s := start()
		first := cookie(s)
		if got := state(start(), first); got != cookieValid {
			t.Errorf("after a restart: %d", got)
		}
		time.Sleep(cookieSecretLife - 30*time.Minute)
		s.rollCookies(t.Context())
		late := cookie(s)
		before := store.kept.Current
		time.Sleep(40 * time.Minute)
		s.rollCookies(t.Context())
		if store.kept.Current == before || store.kept.Previous != before {
			t.Error("the secret was not rolled after its time")
		}
		if got := state(s, late); got != cookieValid {
			t.Errorf("of the secret before: %d", got)
		}
		if got := state(start(), late); got != cookieValid {
			t.Errorf("of the secret before, after a restart: %d", got)
		}
		time.Sleep(2 * cookieSecretLife)
		store.err = errors.New("disk full")
		current := store.kept.Current
		s.rollCookies(t.Context())
		if s.cookies.Load().Current != current {
			t.Error("a secret that was not stored is used")
		}
		store.err = nil
		s.rollCookies(t.Context())
		if s.cookies.Load().Current == current {
			t.Error("the secret is not rolled once the store works again")
		}
	})
}
