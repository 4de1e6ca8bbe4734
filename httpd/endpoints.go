package httpd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

const heartbeat = 15 * time.Second // of a stream without events

// An endpoint answers one question with something that travels as JSON.
type endpoint func(r *http.Request) (any, error)

func (a *Admin) apiRoutes(mux *http.ServeMux, why trust, changes map[string]endpoint) {
	for path, e := range changes {
		mux.Handle(api.Prefix+path, a.only(http.MethodPost, a.json(e)))
	}
	mux.Handle(api.Prefix+"token/rotate", a.only(http.MethodPost, a.json(a.changing(a.postRotate(why)))))
	for path, q := range a.questions(why) {
		mux.Handle(api.Prefix+path, a.only(http.MethodGet, a.asked(q)))
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, &api.Error{Status: http.StatusNotFound, Message: "there is no " + r.URL.Path, Hint: "docs/admin.md lists the API"})
	})
}

// A question is what a GET of the API answers, and the parameters that it may have: with one value, and lists, with several. None: no
// parameter.
type question struct {
	answer       http.HandlerFunc
	known, lists []string
}

// questions are all questions by their path.
func (a *Admin) questions(why trust) map[string]question {
	ask := func(e endpoint) question { return question{answer: a.json(e)} }
	return map[string]question{
		"status":           ask(func(r *http.Request) (any, error) { return a.deps.Backend.Status(r.Context()), nil }),
		"hosts":            ask(func(r *http.Request) (any, error) { return list(a.deps.Backend.Hosts(r.Context())), nil }),
		"hosts/{host}/why": ask(func(r *http.Request) (any, error) { return a.deps.Backend.Why(r.Context(), r.PathValue("host")) }),
		"leases":           {answer: a.getLeases, known: []string{"network", "pool", "host", "expiring", "limit", "cursor"}, lists: []string{"mac", "state"}},
		"pools":            ask(func(r *http.Request) (any, error) { return list(a.deps.Backend.Pools(r.Context())), nil }),
		"balancers":        ask(func(r *http.Request) (any, error) { return list(a.deps.Backend.Balancers(r.Context())), nil }),
		"clusters":         ask(func(r *http.Request) (any, error) { return list(a.deps.Backend.Clusters(r.Context())), nil }),
		"hypervisors":      ask(func(r *http.Request) (any, error) { return a.deps.Backend.Hypervisors(r.Context()) }),
		"vms":              ask(func(r *http.Request) (any, error) { return listOf(a.deps.Backend.VMs(r.Context())) }),
		"vms/plan": {answer: a.json(func(r *http.Request) (any, error) {
			return listOf(a.deps.Backend.VMPlan(r.Context(), r.URL.Query()["host"]))
		}), lists: []string{"host"}},
		"vms/{host}/console": {answer: a.getConsole},
		"vms/{host}/snapshots": ask(func(r *http.Request) (any, error) {
			return listOf(a.deps.Backend.Snapshots(r.Context(), r.PathValue("host")))
		}),
		"vms/{host}/log":  {answer: a.getConsoleLog, known: []string{"boot", "raw"}},
		"unknown":         {answer: a.getUnknown},
		"unknown/{mac}":   ask(a.getAdoption),
		"timeline/{host}": {answer: a.getTimeline, known: []string{"follow"}},
		"lab":             {answer: a.getLab, known: []string{"host", "secrets"}},
		"lab/keys": {answer: a.json(func(r *http.Request) (any, error) {
			return a.deps.Backend.LabKeys(r.Context(), r.FormValue("host"))
		}), known: []string{"host"}},
		"backup":           {answer: a.getBackup},
		"sessions":         ask(func(*http.Request) (any, error) { return a.sessions(), nil }),
		"state":            ask(func(r *http.Request) (any, error) { return a.deps.Backend.State(r.Context()), nil }),
		"token":            ask(func(*http.Request) (any, error) { return a.getToken(why) }),
		"dns/resolve":      {answer: a.json(a.getResolve), known: []string{"name", "type", "as", "do"}},
		"dns/updates":      ask(func(r *http.Request) (any, error) { return a.deps.Backend.DNSUpdates(r.Context()), nil }),
		"dns/log/{client}": {answer: a.getQueries},
	}
}

// asked answers a question, unless it has parameters that are not known.
func (a *Admin) asked(q question) http.HandlerFunc {
	known := slices.Concat(q.known, q.lists)
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := queryOf(r)
		if err == nil {
			err = cmp.Or(p.check(known, q.lists), cleanHost(r))
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		q.answer(w, r)
	}
}

// list makes an empty list of none, so that clients need not know of null.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// listOf is list for what may have failed.
func listOf[T any](items []T, err error) (any, error) { return list(items), err }

func (a *Admin) only(method string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			a.refuse(w, r, &api.Error{Status: http.StatusMethodNotAllowed, Message: r.Method + " is not for " + r.URL.Path, Hint: "want " + method})
			return
		}
		h(w, r)
	}
}

func (a *Admin) json(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := e(r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // an error is a reader that went away
	}
}

// refuse answers with an error: JSON below /api/, a page elsewhere.
func (a *Admin) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := api.AsError(err)
	if e.HTTPStatus() >= http.StatusInternalServerError {
		a.deps.Log.Warn("request failed", keyMethod, r.Method, keyPath, r.URL.Path, keyStatus, e.HTTPStatus(), keyErr, redact(err.Error(), a.keys.Load().token))
	}
	if areaOf(r.URL.Path) == areaPage {
		a.errorPage(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_ = json.NewEncoder(w).Encode(e)
}

// cleanHost checks the {host} of a path, if it has one: a name, or a MAC, which gets its one spelling.
func cleanHost(r *http.Request) error {
	if r.PathValue("host") == "" {
		return nil
	}
	host, err := parseHost(r.PathValue("host"))
	r.SetPathValue("host", host)
	return err
}

// parseHost accepts what can be the name of a host, letters, digits, '-', '_' and '.', or a MAC.
func parseHost(s string) (string, error) {
	if m, err := lab.ParseMAC(s); err == nil {
		return m.String(), nil
	}
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	}
	if s == "" || len(s) > 253 || strings.ContainsFunc(s, bad) || strings.Trim(s, ".") == "" {
		return "", &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not the name of a host", s), Hint: "want a name of the lab or a MAC"}
	}
	return s, nil
}

func (a *Admin) getTimeline(w http.ResponseWriter, r *http.Request) {
	host := r.PathValue("host")
	if r.FormValue("follow") == "1" && r.Method == http.MethodGet {
		a.follow(w, r, host)
		return
	}
	a.json(func(r *http.Request) (any, error) { return listOf(a.deps.Backend.Boots(r.Context(), host)) })(w, r)
}

// follow streams the events of a host.
func (a *Admin) follow(w http.ResponseWriter, r *http.Request, host string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, err := a.deps.Backend.Follow(ctx, host)
	stream(a, w, r, events, err)
}

func (a *Admin) getResolve(r *http.Request) (any, error) {
	return a.deps.Backend.Resolve(r.Context(), api.DNSQuestion{Name: r.FormValue("name"), Type: r.FormValue("type"), As: r.FormValue("as"), DO: r.FormValue("do") == "1"})
}

// getQueries streams the DNS queries of a client.
func (a *Admin) getQueries(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	queries, err := a.deps.Backend.FollowDNS(ctx, r.PathValue("client"))
	stream(a, w, r, queries, err)
}

// stream writes what comes, one JSON object a line, each flushed. An empty line now and then is a sign of life.
func stream[T any](a *Admin, w http.ResponseWriter, r *http.Request, lines <-chan T, err error) {
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for err = flush(); err == nil; err = flush() {
		select {
		case <-r.Context().Done():
			return
		case <-alive.C:
			a.open.Use(a.keys.Load().session(r)) // a session with an open stream is in use
			_, err = io.WriteString(w, "\n")
		case line, ok := <-lines:
			if !ok || r.Context().Err() != nil {
				return
			}
			err = json.NewEncoder(w).Encode(line)
		}
		if err != nil {
			return
		}
	}
}

func (a *Admin) getLab(w http.ResponseWriter, r *http.Request) {
	host := r.FormValue("host")
	if host != "" {
		var err error
		if host, err = parseHost(host); err != nil {
			a.refuse(w, r, err)
			return
		}
	}
	secrets := api.Hidden
	if r.FormValue("secrets") == "1" {
		secrets = api.Shown
	}
	text, err := a.deps.Backend.Plan(r.Context(), host, secrets)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text)
}

// getBackup streams a backup. One that cannot be completed says so in its last line: its status has left by then.
func (a *Admin) getBackup(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	if r.Method == http.MethodHead {
		return
	}
	if err := a.deps.Backend.Backup(r.Context(), w); err != nil {
		a.deps.Log.Warn("backup not completed", keyErr, err)
	}
}

// getUnknown builds few lists at one time, since each goes through the whole lease book: a hundred readers wait for each other
// instead of needing memory for a hundred.
func (a *Admin) getUnknown(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.building.run(func() []byte {
		var b bytes.Buffer
		_ = json.NewEncoder(&b).Encode(list(a.deps.Backend.Unknown(r.Context()))) // its texts are valid
		return b.Bytes()
	}))
}

func (a *Admin) getAdoption(r *http.Request) (any, error) {
	mac, err := lab.ParseMAC(r.PathValue("mac"))
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not a MAC", r.PathValue("mac")), Hint: "want one such as 52-54-00-2c-01-10"}
	}
	return a.deps.Backend.Adoption(r.Context(), mac)
}

// getToken returns the token over the Unix socket only: a page that reaches the API by TCP must not read it.
func (a *Admin) getToken(why trust) (any, error) {
	if why != bySocket {
		return nil, tokenBySocket("run bootlab token on the daemon's machine")
	}
	return api.Token{Token: a.keys.Load().token}, nil
}

// tokenBySocket refuses a request for the token that came over TCP.
func tokenBySocket(hint string) error {
	return &api.Error{Status: http.StatusForbidden, Message: "the token is available over the Unix socket only", Hint: hint}
}

const (
	// leasesPerPage is how many leases are in memory for one reader of the whole book. Each page goes through the book once.
	leasesPerPage = 4096
	maxLimit      = 10_000 // leases of a page that is asked for
)

// getLeases streams an array of all leases that are asked for, or, with limit, one page of it with the cursor of the next in the
// header Link (RFC 8288).
func (a *Admin) getLeases(w http.ResponseWriter, r *http.Request) {
	q, err := a.leaseQuery(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	whole := q.Limit == 0
	if whole {
		q.Limit = leasesPerPage
	}
	page := a.deps.Backend.Leases(r.Context(), q)
	if !whole && page.Next.IsValid() {
		next := r.URL.Query()
		next.Set("cursor", page.Next.String())
		w.Header().Set("Link", "<"+r.URL.Path+"?"+next.Encode()+`>; rel="next"`)
	}
	w.Header().Set("Content-Type", "application/json")
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	before := byte('[')
	for {
		for _, l := range page.Leases {
			text.Reset()
			text.WriteByte(before)
			_ = lines.Encode(l)                                                              // a Lease always has a text
			if _, err := w.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil { // the reader went away
				return
			}
			before = ','
		}
		if !whole || !page.Next.IsValid() {
			break
		}
		q.After = page.Next
		page = a.deps.Backend.Leases(r.Context(), q)
	}
	end := "]\n"
	if before == '[' {
		end = "[]\n"
	}
	_, _ = io.WriteString(w, end)
}

// leaseQuery reads the parameters of GET leases. Without a limit it is 0.
func (a *Admin) leaseQuery(r *http.Request) (q api.LeaseQuery, err error) {
	form := r.URL.Query()
	f, err := api.ParseLeaseFilter(form)
	if err != nil {
		return q, err
	}
	now := a.deps.Now()
	q.Keep = func(l *api.Lease) bool { return f.Keep(*l, now) }
	if s := form.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return q, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("limit=%.60q is not a number of leases", s), Hint: fmt.Sprintf("want 1 to %d", maxLimit)}
		}
	}
	if s := form.Get("cursor"); s != "" {
		if q.After, err = netip.ParseAddr(s); err != nil {
			return q, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("cursor=%.60q is not valid", s), Hint: "take it from the header Link of the page before"}
		}
	}
	return q, nil
}
