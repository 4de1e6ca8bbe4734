package httpd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/client/hostheader"
	"github.com/bootlab/bootlab/internal/host/client/logins"
	"github.com/bootlab/bootlab/internal/host/client/webserver"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A Backend is the daemon, as the admin API asks it.
type Backend interface {
	// The daemon, its lab and its state.

	// Status returns the state of the daemon as it is now: the generation in force, the last reload, what serves and what is wrong.
	Status(ctx context.Context) api.Status
	// Generation is that of Status: each lab that is put in force has the next.
	Generation() uint64
	// Reload reads the lab again, and returns once it is in force or refused. Its error is the reason why the lab was refused; the last
	// good lab stays in force. Forced applies even one that drops more than half of the contents.
	Reload(ctx context.Context, force api.Force) (api.Reload, error)
	// CheckReload returns the error that a careful Reload would be refused with now, and the generation in force.
	CheckReload(ctx context.Context) (api.Reload, error)
	// State returns the condition of the state folder as it is now.
	State(ctx context.Context) api.State
	// AcceptState takes the state as it is after a loss, if its database has that name: hosts whose install state is unknown are
	// armed. It returns the state afterwards.
	AcceptState(ctx context.Context, database string) (api.State, error)
	// Backup writes a backup of the daemon's state as it is at the start of the call. Leases and installs go on meanwhile.
	Backup(ctx context.Context, w io.Writer) error

	// Hosts and leases. Lists are sorted: hosts by name, leases by address.

	// Hosts returns the machines of the lab, each with its install state, and how its virtual machine is where it is one.
	Hosts(ctx context.Context) []api.Host
	// Leases returns a page of the book, which has expired and released leases too.
	Leases(ctx context.Context, q api.LeaseQuery) api.LeasePage
	// Plan returns everything derived from the lab in force as text, for one host or, with "", for all.
	Plan(ctx context.Context, host string, s api.Secrets) (string, error)
	// LabKeys returns the keys of the lab in force whose values no plan shows, each with a fingerprint of its value.
	LabKeys(ctx context.Context, host string) (map[string]string, error)

	// Leases and pools.

	// Release gives the lease of an address back as if its machine had, or frees an address that was quarantined. The error
	// says why not.
	Release(ctx context.Context, addr netip.Addr) error
	// Import takes over leases of another server, or answers what it would do. Leases that it skips are no error.
	Import(ctx context.Context, leases []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error)
	// Pools returns all pools, by network and name.
	Pools(ctx context.Context) []api.Pool

	// A host's boots. host is a name of the lab, or the MAC of an unknown machine with colons.

	// Boots returns the boots that are remembered, the oldest first.
	Boots(ctx context.Context, host string) ([]api.Boot, error)
	// Why returns where the last boot stopped, and why.
	Why(ctx context.Context, host string) (api.Diagnosis, error)
	// Follow returns the host's events from now on. The channel is closed when ctx ends, or when the reader is too slow.
	Follow(ctx context.Context, host string) (<-chan event.Event, error)

	// Installations.

	// Install arms host, a name of the lab, for its next boot, and power-cycles it if cycle says so. If only that fails, host
	// stays armed and the error says it.
	Install(ctx context.Context, host string, cycle api.Cycle) (api.Arming, error)
	// MarkInstalled makes host count as installed, because an admin says so.
	MarkInstalled(ctx context.Context, host string) (api.Arming, error)

	// Machines that are not in the lab file.

	// Unknown returns machines that are not in the lab, the one seen last first.
	Unknown(ctx context.Context) []api.UnknownMachine
	// Adoption says how one of them could become a host.
	Adoption(ctx context.Context, mac lab.MAC) (api.Adoption, error)

	// Virtual machines of the lab, and power.

	// VMs returns, by host, those in the lab file, created or not, and those that are no longer in it. Where a hypervisor does not
	// answer, its machines are there with the reason.
	VMs(ctx context.Context) ([]api.VM, error)
	// VMPlan compares the machines of hosts with the lab file; nil: all. It asks the hypervisors.
	VMPlan(ctx context.Context, hosts []string) ([]api.VMPlan, error)
	// Hypervisors returns those of the lab, and how much of them is allocated. It asks them.
	Hypervisors(ctx context.Context) ([]api.Hypervisor, error)
	// Network does action to a libvirt network that bootlab creates, and returns how it is afterwards.
	Network(ctx context.Context, hypervisor, network string, action api.NetworkAction) (api.VMPlan, error)
	// VM does action to the machine of host and returns how it is afterwards.
	VM(ctx context.Context, host string, action api.VMAction, opts api.VMOptions) (api.VM, error)
	// Snapshots returns the snapshots of the machine of host, the oldest first.
	Snapshots(ctx context.Context, host string) ([]api.Snapshot, error)
	// Snapshot does action with one of them, and returns all that there are afterwards.
	Snapshot(ctx context.Context, host string, action api.SnapshotAction, name string) ([]api.Snapshot, error)
	// Power does action to the power of a host, virtual or not, and returns how it is afterwards.
	Power(ctx context.Context, host string, action api.PowerAction) (api.Power, error)
	// SetBoot sets what a host boots from next; always: at each boot.
	SetBoot(ctx context.Context, host string, device api.BootDevice, always bool) (api.NextBoot, error)

	// Serial consoles of virtual machines.

	// Console returns what happens on a host's console from now on. The channel is closed when ctx ends.
	Console(ctx context.Context, host string) (<-chan api.ConsoleOutput, error)
	// TakeConsole takes it from another program that has it.
	TakeConsole(ctx context.Context, host string) error
	// TypeConsole types on it.
	TypeConsole(ctx context.Context, host string, input []byte) error
	// ConsoleBoots returns the boots of a host whose output is kept, the oldest first.
	ConsoleBoots(ctx context.Context, host string) []api.ConsoleBoot
	// ConsoleLog returns the output of the boot that started at a time, as the machine wrote it.
	ConsoleLog(ctx context.Context, host string, started time.Time) ([]byte, error)

	// Balancers, by name, and their backends.

	// Balancers returns all of them, each with its backends and what is believed of their health.
	Balancers(ctx context.Context) []api.Balancer
	// Backend does action to a backend, given by name or address, and returns how it is afterwards.
	Backend(ctx context.Context, balancer, backend string, change api.BackendChange) ([]api.Backend, error)

	// Clusters of the lab.

	// Clusters returns those that can be brought up, by name.
	Clusters(ctx context.Context) []api.Cluster
	// Up notes that a cluster is to be brought up, and returns at once.
	Up(ctx context.Context, name string) (api.Cluster, error)
	// Down shuts the virtual machines of a cluster down.
	Down(ctx context.Context, name string) (api.Cluster, error)

	// DNS. client is an address, or a host of the lab.

	// Resolve answers a question as its client would be answered, and says why.
	Resolve(ctx context.Context, q api.DNSQuestion) (api.DNSAnswer, error)
	// FlushDNS removes a name and those below it, or everything, from the forwarder's cache.
	FlushDNS(ctx context.Context, name string) (api.DNSFlush, error)
	// DNSUpdates returns what dynamic updates have made.
	DNSUpdates(ctx context.Context) []api.DNSUpdate
	// DeleteDNSUpdate deletes what they made at a name: one type, or all if it is empty.
	DeleteDNSUpdate(ctx context.Context, name, rtype string) (api.DNSUpdatesDeleted, error)
	// FollowDNS returns the queries of a client from now on. The channel is closed when ctx ends, or when the reader is too slow.
	FollowDNS(ctx context.Context, client string) (<-chan api.DNSQuery, error)
}

// AdminConfig is the configuration of Admin. Token is required.
type AdminConfig struct {
	Token  string // asked for over TCP; see LoadToken
	Limits Limits // Drain is not used: an interrupted page does no harm
}

// AdminDeps is what Admin needs. All fields are required. An error of any of them may be an
// *api.Error, or carry a status in a method HTTPStatus() int; otherwise it is answered with 500.
type AdminDeps struct {
	Backend    Backend
	Gatherer   prometheus.Gatherer // what /metrics shows
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Now        func() time.Time
	Panics     *panics.Server // counts contained panics; nil: they are only logged

	// NewToken replaces the token by a new one where LoadToken finds it; it is on disk when NewToken returns.
	NewToken func(ctx context.Context) (string, error)

	// Own reports whether a Host header means this appliance: a name in lower case, or an address, and a port; 0: none.
	Own func(host string, port uint16) bool
}

// Admin serves the dashboard, the admin API, metrics and health.
type Admin struct {
	limits   Limits
	web      *webserver.Server
	deps     AdminDeps
	keys     atomic.Pointer[keys]
	rotation sync.Mutex // one at a time, so that the token on disk is the one in keys
	logins   *logins.Limiter
	open     *logins.Sessions[netip.Addr]
	pages    *template.Template
	rendered *pageCache // overviews, by query
	building builder
	metrics  *metrics
	cross    *http.CrossOriginProtection
}

// NewAdmin returns a server. The error is that its metrics are registered already, or that the token is too short.
func NewAdmin(cfg AdminConfig, deps AdminDeps) (*Admin, error) {
	required.Fields(deps, "Panics")
	if len(cfg.Token) < minToken {
		return nil, fmt.Errorf("new admin server: a token of %d characters is too short: want %d or more", len(cfg.Token), minToken)
	}
	m, err := newMetrics(deps.Registerer, "admin", areaNames())
	if err == nil {
		err = m.registerLogins(deps.Registerer)
	}
	if err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	pages, err := parsePages(deps.Now)
	if err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	deps.Log = deps.Log.With("server", "admin")
	deps.Panics = cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "admin"))
	limits := cfg.Limits.withDefaults()
	limits.Drain, limits.Patience = time.Second, 0
	a := &Admin{
		limits: limits, web: limits.server(m, deps.Log), deps: deps,
		logins: logins.New(deps.Now), open: logins.NewSessions[netip.Addr](deps.Now, sessionIdle, maxSessions), pages: pages,
		rendered: &pageCache{now: deps.Now, pages: map[string]*cachedPage{}}, building: make(builder, 2), metrics: m,
		cross: http.NewCrossOriginProtection(),
	}
	a.keys.Store(newKeys(cfg.Token))
	return a, nil
}

// Serve answers on all listeners until ctx ends and returns nil. It closes no listener. The permissions of a Unix socket
// decide who may use it; TCP needs the token. It may be called once for each listener.
func (a *Admin) Serve(ctx context.Context, listeners ...net.Listener) error {
	bindings := make([]webserver.Binding, len(listeners))
	for i, l := range listeners {
		why := byToken
		if l.Addr().Network() == "unix" {
			why = bySocket
		}
		bindings[i] = webserver.Binding{Listener: l, Handler: a.handler(why)}
	}
	return a.web.Run(ctx, ctx, bindings...)
}

// A trust is why a caller may use the admin API.
type trust int

// The kinds of trust.
const (
	byToken  trust = iota // the caller must show the token
	bySocket              // the caller could open the Unix socket
)

// An area is a group of Admin's paths, for metrics.
type area int

const (
	areaOther area = iota
	areaAPI
	areaPage
	areaStatic
	areaMetrics
	areaHealth
)

func areaNames() []string { return []string{"other", "api", "page", "static", "metrics", "health"} }

func areaOf(path string) area {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "api":
		return areaAPI
	case "", "hosts", "login", "logout", "do":
		return areaPage
	case "static":
		return areaStatic
	case "metrics":
		return areaMetrics
	case "healthz", "readyz":
		return areaHealth
	}
	return areaOther
}

// open reports whether an area needs no token: its pages name no secret and no host.
func (p area) open() bool { return p == areaStatic || p == areaMetrics || p == areaHealth }

// handler returns the handler of all paths, for callers of that trust.
func (a *Admin) handler(why trust) http.Handler {
	mux := a.routes(why)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start, where := a.deps.Now(), areaOf(r.URL.Path)
		w := newReply(rw, r, a.limits.Stall)
		a.metrics.inFlight.Inc()
		defer func() {
			a.metrics.inFlight.Dec()
			a.metrics.count(int(where), w, since(a.deps.Now, start))
		}()
		guard(a.deps.Panics, w, a.keys.Load().token, func() { a.admit(w, r, mux, why, where) })
	})
}

// admit lets a request through to mux, or says what it lacks.
func (a *Admin) admit(w *reply, r *http.Request, mux http.Handler, why trust, where area) {
	secure(w.Header())
	r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r.URL.Path))
	switch {
	case why == byToken && where != areaHealth && !hostheader.Addressed(r, a.deps.Own):
		a.misdirected(w, r)
	case a.cross.Check(r) != nil, fromOtherPage(r):
		a.refuse(w, r, &api.Error{Status: http.StatusForbidden, Message: "this request comes from another site",
			Hint: "open the dashboard itself and try again"})
	case why == bySocket, where.open(), r.URL.Path == "/login":
		mux.ServeHTTP(w, r)
	case a.admitSession(w, r, mux):
	case a.admitToken(w, r, mux):
	case w.code != 0: // limited
	case where == areaPage && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		a.loginPage(w, http.StatusUnauthorized, "")
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="bootlab"`)
		a.refuse(w, r, &api.Error{Status: http.StatusUnauthorized, Message: "the token is missing or wrong",
			Hint: "bootlab token shows it on the machine of the daemon"})
	}
}

// fromOtherPage reports whether a request that may change something comes from a page of another site. Browsers say so by Sec-Fetch-Site or
// Origin, which http.CrossOriginProtection checks; for want of both, by Referer.
func fromOtherPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	referer := r.Header.Get("Referer")
	if referer == "" || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	u, err := url.Parse(referer)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

// misdirected refuses a request whose Host header is not ours. A page would show the name to the client that chose it.
func (a *Admin) misdirected(w http.ResponseWriter, r *http.Request) {
	e := &api.Error{Status: http.StatusMisdirectedRequest, Message: fmt.Sprintf("%.100q is no name or address of this appliance, or has another port", r.Host),
		Hint: "use an address of the appliance, or add the name to appliance.admin_hosts"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_ = json.NewEncoder(w).Encode(e)
}

// admitSession passes a request with the cookie of a session on to mux; false: it has none.
func (a *Admin) admitSession(w *reply, r *http.Request, mux http.Handler) bool {
	session, ok := a.open.Use(a.keys.Load().session(r))
	if !ok {
		return false
	}
	serveUntil(session.Over, w, r, mux)
	return true
}

// serveUntil passes a request on to mux. A read ends with over; what changes something is completed.
func serveUntil(over context.Context, w *reply, r *http.Request, mux http.Handler) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(over, cancel)()
		r = r.WithContext(ctx)
	}
	mux.ServeHTTP(w, r)
}

// admitToken passes a request that shows the token in its header on to mux; false: it does not. It answers a wrong one whose source has
// shown too many.
func (a *Admin) admitToken(w *reply, r *http.Request, mux http.Handler) bool {
	token, ok := bearer(r)
	if !ok {
		return false
	}
	k := a.keys.Load()
	result := a.tryToken(k, r, token)
	if result == logins.Limited {
		w.Header().Set("Retry-After", strconv.Itoa(int(logins.Every/time.Second)))
		a.refuse(w, r, tooManyLogins())
	}
	if result != logins.Accepted {
		return false
	}
	serveUntil(k.over, w, r, mux)
	return true
}

// tryToken looks at a token, counts, and logs one that is wrong. The right one is accepted after any number of wrong ones: behind a proxy
// whoever guesses has the admin's address, and 260 random bits are not guessed at any rate.
func (a *Admin) tryToken(k *keys, r *http.Request, token string) logins.Result {
	from, result := peer(r), logins.Accepted
	if !k.isToken(token) {
		result = a.logins.Try(from, func() bool { return false })
	}
	a.metrics.logins[result].Inc()
	switch result {
	case logins.Rejected:
		a.deps.Log.Warn("login failed: wrong token", keyAddr, from)
	case logins.Limited:
		a.deps.Log.Warn("login refused: too many wrong tokens from this address", keyAddr, from)
	}
	return result
}

func tooManyLogins() *api.Error {
	return &api.Error{Status: http.StatusTooManyRequests, Message: "too many wrong tokens from this address",
		Hint: "this one is wrong, too; bootlab token shows the right one on the machine of the daemon, and it is accepted at once"}
}

const (
	maxForm   = 64 << 10
	maxImport = 64 << 20 // leases as JSON: some 200,000

	pathImport = "leases/import"
)

// bodyLimit bounds the body of a request for path.
func bodyLimit(path string) int64 {
	if path == api.Prefix+pathImport {
		return maxImport
	}
	return maxForm
}

// secure sets what keeps a page from being framed, scripted or cached.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (a *Admin) routes(why trust) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(SelfTestPath, get(a.healthz))
	mux.Handle("/readyz", get(func(w http.ResponseWriter, r *http.Request) {
		_, known := a.open.Use(a.keys.Load().session(r))
		a.readyz(w, r, known || why == bySocket)
	}))
	mux.Handle("/metrics", get(promhttp.HandlerFor(a.deps.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(a.deps.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	}).ServeHTTP))
	changes := a.changes()
	a.apiRoutes(mux, why, changes)
	a.pageRoutes(mux, changes)
	return mux
}

// get answers 405 to everything but GET and HEAD.
func get(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	})
}
