package redfish

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/client/logins"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// authenticate finds out who sent a request: by its session (X-Auth-Token), or by Basic (DSP0266 section 13.3.4).
func (s *Service) authenticate(a *answer, r *http.Request) error {
	if key := r.Header.Get("X-Auth-Token"); key != "" {
		account, err := s.resume(key)
		if err != nil {
			return err
		}
		a.user, a.role = account.Name, account.Role
		return nil
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return &Error{Status: http.StatusUnauthorized, ID: "NoValidSession", Message: "the request has neither a session nor credentials"}
	}
	account, err := s.login(r, user, password)
	if err != nil {
		return err
	}
	a.user, a.role = account.Name, account.Role
	return nil
}

// resume returns the account of a session. One whose account was removed, or has another password now, is none any more.
func (s *Service) resume(key string) (*lab.RedfishAccount, error) {
	session, ok := s.sessions.Use(key)
	account := s.account(session.Of.user)
	if !ok || account == nil {
		return nil, &Error{Status: http.StatusUnauthorized, ID: "NoValidSession"}
	}
	password, err := s.password(account)
	switch {
	case err != nil:
		return nil, &Error{Status: http.StatusServiceUnavailable, ID: "ServiceTemporarilyUnavailable", Args: []string{"5"}, RetryAfter: retryAfter,
			Message: "the password of the account cannot be read"}
	case password != session.Of.password:
		s.end(session.ID)
		return nil, &Error{Status: http.StatusUnauthorized, ID: "NoValidSession", Message: "the password was changed since the login"}
	}
	return account, nil
}

// login returns the account of a user, if the password is its own. A source that tries too many has to wait.
func (s *Service) login(r *http.Request, user, password string) (*lab.RedfishAccount, error) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	var account *lab.RedfishAccount
	result := s.logins.Try(from.Addr().Unmap(), func() bool {
		account = s.account(user)
		return s.right(account, password)
	})
	s.results.WithLabelValues(string(result)).Inc()
	switch result {
	case logins.Accepted:
		return account, nil
	case logins.Limited:
		return nil, &Error{Status: http.StatusServiceUnavailable, ID: "ServiceTemporarilyUnavailable", Args: []string{"10"},
			Message: "too many wrong passwords from this address: try again in 10 seconds", RetryAfter: logins.Every}
	}
	s.deps.Log.Warn("login failed: wrong user or password", "addr", from.Addr().String())
	return nil, &Error{Status: http.StatusUnauthorized, ID: "NoValidSession", Message: "wrong user or password"}
}

// account returns the account of a user; nil: there is none.
func (s *Service) account(user string) *lab.RedfishAccount {
	accounts := s.deps.Lab().Redfish.Accounts
	if i := slices.IndexFunc(accounts, func(a lab.RedfishAccount) bool { return a.Name == user }); i >= 0 {
		return &accounts[i]
	}
	return nil
}

// right reports whether a password is that of an account, which may be nil. An empty password is never right.
func (s *Service) right(account *lab.RedfishAccount, password string) bool {
	want := sha256.Sum256(nil)
	if account != nil {
		want, _ = s.password(account) // of nothing, if it cannot be read
	}
	shown := sha256.Sum256([]byte(password))
	return subtle.ConstantTimeCompare(shown[:], want[:]) == 1 && password != ""
}

// password returns the hash of an account's password, as its file has it now. What cannot be read is logged.
func (s *Service) password(account *lab.RedfishAccount) ([sha256.Size]byte, error) {
	b, err := regular.Read(account.PasswordFile, regular.Small)
	if err != nil {
		s.deps.Log.Warn("cannot read password of account", "user", account.Name, "err", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return sha256.Sum256([]byte(strings.TrimRight(line, "\r"))), err
}
