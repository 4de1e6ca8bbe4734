package redfish

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Limits of sessions.
const (
	maxSessions = 64
	// maxUserSessions leaves sessions to other accounts when a client of one never ends its own.
	maxUserSessions = 16
	sessionIdle     = 30 * time.Minute
)

// sessions are the open sessions. They are in memory: a restart ends them. Keys are kept as their hashes.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open map[[sha256.Size]byte]*session
}

// A session is one login.
type session struct {
	id, user  string
	password  [sha256.Size]byte // its hash: that of the login
	from      string
	made, use time.Time
}

// start begins a session of a user with that password and returns its key. It is an error if there are too many.
func (s *sessions) start(user, password, from string) (key string, _ session, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	own := 0
	for _, o := range s.open {
		if o.user == user {
			own++
		}
	}
	if len(s.open) >= maxSessions || own >= maxUserSessions {
		return "", session{}, &Error{Status: http.StatusServiceUnavailable, ID: "SessionLimitExceeded", RetryAfter: retryAfter}
	}
	var b [40]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:32])
	now := s.now()
	o := &session{id: hex.EncodeToString(b[32:]), user: user, password: sha256.Sum256([]byte(password)), from: from, made: now, use: now}
	s.open[sha256.Sum256([]byte(key))] = o
	return key, *o, nil
}

func (s *sessions) expireLocked() {
	for key, o := range s.open {
		if s.now().Sub(o.use) > sessionIdle {
			delete(s.open, key)
		}
	}
}

// use returns the session whose key this is, and notes that it is used. It reports false if there is none.
func (s *sessions) use(key string) (_ session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	o := s.open[sha256.Sum256([]byte(key))]
	if o == nil {
		return session{}, false
	}
	o.use = s.now()
	return *o, true
}

// list returns the sessions, the oldest first.
func (s *sessions) list() (all []session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	for _, o := range s.open {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b session) int { return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.id, b.id)) })
	return all
}

// end ends a session, by its ID.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.open {
		if o.id == id {
			delete(s.open, key)
		}
	}
}

// The paths of sessions.
const (
	sessionService = root + "/SessionService"
	sessionsPath   = sessionService + "/Sessions"
)

// sessionServiceObject is the resource of the session service.
func sessionServiceObject(*http.Request) (object, error) {
	return object{
		"@odata.id": sessionService, "@odata.type": "#SessionService.v1_1_9.SessionService", "Id": "SessionService", "Name": "Session Service",
		"ServiceEnabled": true, "SessionTimeout": int(sessionIdle / time.Second), "Sessions": link(sessionsPath), "Status": enabled,
	}, nil
}

// listSessions is the collection of sessions.
func (s *Service) listSessions(*http.Request) (object, error) {
	var members []string
	for _, o := range s.sessions.list() {
		members = append(members, sessionsPath+"/"+o.id)
	}
	return collection(sessionsPath, "Session", "Sessions", members), nil
}

// postSession logs in.
func (s *Service) postSession(a *answer, r *http.Request) error {
	o, err := readObject(r)
	if err != nil {
		return err
	}
	user, isUser := o["UserName"].(string)
	password, isPassword := o["Password"].(string)
	if !isUser || !isPassword {
		return &Error{Status: http.StatusBadRequest, ID: "ActionParameterMissing", Args: []string{"Sessions", "UserName, Password"}}
	}
	account, err := s.login(r, user, password)
	if err != nil {
		return err
	}
	key, session, err := s.sessions.start(account.Name, password, r.RemoteAddr)
	if err != nil {
		return err
	}
	a.user = account.Name
	a.Header().Set("X-Auth-Token", key)
	a.Header().Set("Location", sessionsPath+"/"+session.id)
	a.created(session.object())
	return nil
}

func (o session) object() object {
	return object{
		"@odata.id": sessionsPath + "/" + o.id, "@odata.type": "#Session.v1_6_0.Session", "Id": o.id, "Name": "Session of " + o.user,
		"UserName": o.user, "ClientOriginIPAddress": o.from, "CreatedTime": o.made.UTC().Format(time.RFC3339),
	}
}

// sessionOf returns the session that a path names.
func (s *Service) sessionOf(r *http.Request) (session, error) {
	for _, o := range s.sessions.list() {
		if o.id == r.PathValue("id") {
			return o, nil
		}
	}
	return session{}, errNotFound(r.URL.Path)
}

func (s *Service) getSession(r *http.Request) (object, error) {
	o, err := s.sessionOf(r)
	if err != nil {
		return nil, err
	}
	return o.object(), nil
}

// deleteSession logs out. Only an administrator may end the session of another.
func (s *Service) deleteSession(a *answer, r *http.Request) error {
	o, err := s.sessionOf(r)
	if err != nil {
		return err
	}
	if o.user != a.user && !a.role.AtLeast(lab.RedfishAdministrator) {
		return &Error{Status: http.StatusForbidden, ID: "InsufficientPrivilege"}
	}
	s.sessions.end(o.id)
	a.WriteHeader(http.StatusNoContent)
	return nil
}
