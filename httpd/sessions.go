package httpd

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/client/logins"
)

const (
	maxSessions = 64             // logins of the dashboard at one time; a further one ends the session that was not used for longest
	sessionIdle = 24 * time.Hour // without a request until a session ends
)

// A session is a login of the dashboard, from an address.
type session = logins.Session[netip.Addr]

// endSession ends one session.
func (a *Admin) endSession(one session) { a.open.End(func(o session) bool { return o.ID == one.ID }) }

func everySession(session) bool { return true }

// sessions returns all sessions, the one used last first.
func (a *Admin) sessions() []api.Session {
	all := []api.Session{}
	for _, o := range a.open.List() {
		all = append(all, api.Session{From: o.Of, Since: o.Since, Used: o.Used})
	}
	slices.SortFunc(all, func(a, b api.Session) int { return cmp.Or(b.Used.Compare(a.Used), a.From.Compare(b.From)) })
	return all
}
