package redfish

import (
	"cmp"
	"crypto/sha256"
	"net/http"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/logins"
	"github.com/bootlab/bootlab/internal/lab"
)

// Limits of sessions.
const (
	maxSessions = 64
	// maxUserSessions leaves sessions to other accounts when a client of one never ends its own.
	maxUserSessions = 16
	sessionIdle     = 30 * time.Minute
)

// A login is what a session is of.
type login struct {
	user     string
	password [sha256.Size]byte // its hash: that of the login
	from     string
}

type session = logins.Session[login]

// admit returns an error if a user may not have one more session.
func admit(user string) func(open []session) error {
	return func(open []session) error {
		others := slices.DeleteFunc(slices.Clone(open), func(o session) bool { return o.Of.user == user })
		if len(open) >= maxSessions || len(open)-len(others) >= maxUserSessions {
			return &Error{Status: http.StatusServiceUnavailable, ID: "SessionLimitExceeded", RetryAfter: retryAfter}
		}
		return nil
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
	open := s.sessions.List()
	slices.SortFunc(open, func(a, b session) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	for _, o := range open {
		members = append(members, sessionsPath+"/"+o.ID)
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
	key, session, err := s.sessions.Start(login{account.Name, sha256.Sum256([]byte(password)), r.RemoteAddr}, admit(account.Name))
	if err != nil {
		return err
	}
	a.user = account.Name
	a.Header().Set("X-Auth-Token", key)
	a.Header().Set("Location", sessionsPath+"/"+session.ID)
	a.created(objectOf(session))
	return nil
}

func objectOf(o session) object {
	return object{
		"@odata.id": sessionsPath + "/" + o.ID, "@odata.type": "#Session.v1_6_0.Session", "Id": o.ID, "Name": "Session of " + o.Of.user,
		"UserName": o.Of.user, "ClientOriginIPAddress": o.Of.from, "CreatedTime": o.Since.UTC().Format(time.RFC3339),
	}
}

// sessionOf returns the session that a path names.
func (s *Service) sessionOf(r *http.Request) (session, error) {
	open := s.sessions.List()
	if i := slices.IndexFunc(open, func(o session) bool { return o.ID == r.PathValue("id") }); i >= 0 {
		return open[i], nil
	}
	return session{}, errNotFound(r.URL.Path)
}

func (s *Service) getSession(r *http.Request) (object, error) {
	o, err := s.sessionOf(r)
	if err != nil {
		return nil, err
	}
	return objectOf(o), nil
}

// deleteSession logs out. Only an administrator may end the session of another.
func (s *Service) deleteSession(a *answer, r *http.Request) error {
	o, err := s.sessionOf(r)
	if err != nil {
		return err
	}
	if o.Of.user != a.user && !a.role.AtLeast(lab.RedfishAdministrator) {
		return &Error{Status: http.StatusForbidden, ID: "InsufficientPrivilege"}
	}
	s.end(o.ID)
	a.WriteHeader(http.StatusNoContent)
	return nil
}

// end ends a session, by its ID.
func (s *Service) end(id string) { s.sessions.End(func(o session) bool { return o.ID == id }) }
