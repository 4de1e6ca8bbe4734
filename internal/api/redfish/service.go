package redfish

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/client/hostheader"
	"github.com/bootlab/bootlab/internal/host/client/logins"
	"github.com/bootlab/bootlab/internal/host/client/webserver"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A Config tunes a Service. The zero value is the default.
type Config struct {
	Connections int // open at one time; default 64
}

// Deps are what a Service needs. All but Panics are required.
type Deps struct {
	Lab        func() *lab.Lab
	Machines   Machines
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	// Own reports whether a Host header means this service: a name in lower case, or an address, and a port; 0: none.
	Own func(host string, port uint16) bool
	// Certificate returns the certificate of a connection.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Panics      *panics.Server // nil: contained panics are only logged
}

// Limits of requests.
const (
	headerWait = 10 * time.Second
	idleWait   = 60 * time.Second
	drainWait  = 5 * time.Second
	maxBody    = 64 << 10
)

// MetricRequests counts requests, by method and status class; MetricLogins logins by result: accepted, rejected or limited.
const (
	MetricRequests = "bootlab_redfish_requests_total"
	MetricLogins   = "bootlab_redfish_logins_total"
)

// A Service is the Redfish service. It is safe for concurrent use.
type Service struct {
	deps     Deps
	conns    *connlimit.Set
	logins   *logins.Limiter
	sessions *logins.Sessions[login]
	mux      *http.ServeMux
	requests *prometheus.CounterVec
	results  *prometheus.CounterVec
	later    sync.WaitGroup // what goes on after its request was answered
}

// New returns a Service.
func New(cfg Config, deps Deps) (*Service, error) {
	required.Fields(deps, "Panics")
	deps.Log = deps.Log.With("server", "redfish")
	deps.Panics = cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "redfish"))
	s := &Service{
		deps: deps, conns: connlimit.New(connlimit.Config{Max: cmp.Or(cfg.Connections, 64)}), logins: logins.New(deps.Now), sessions: logins.NewSessions[login](deps.Now, sessionIdle, maxSessions),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricRequests, Help: "Requests to the Redfish service, by method and class of the status."}, []string{"method", "status"}),
		results:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricLogins, Help: "Logins to the Redfish service: accepted, rejected, or limited: rejected unread."}, []string{"result"}),
	}
	for _, r := range []logins.Result{logins.Accepted, logins.Rejected, logins.Limited} {
		s.results.WithLabelValues(string(r))
	}
	for _, c := range []prometheus.Collector{s.requests, s.results} {
		if err := deps.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the Redfish service: %w", err)
		}
	}
	s.mux = s.routes()
	return s, nil
}

// Serve answers on all listeners until ctx ends, lets requests in progress finish for a few seconds, and returns nil. It closes no
// listener, and may be called once for each.
func (s *Service) Serve(ctx context.Context, listeners ...net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer s.later.Wait()
	defer cancel()
	web := webserver.Server{Conns: s.conns, Header: headerWait, Request: headerWait, Idle: idleWait, Drain: drainWait, Log: s.deps.Log}
	if s.deps.Lab().Redfish.TLS {
		web.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.deps.Certificate, NextProtos: []string{"http/1.1"}}
	}
	bindings := make([]webserver.Binding, len(listeners))
	for i, l := range listeners {
		h := func(w http.ResponseWriter, r *http.Request) { s.serve(&answer{ResponseWriter: w, after: base}, r) }
		bindings[i] = webserver.Binding{Listener: l, Handler: http.HandlerFunc(h)}
	}
	return web.Run(ctx, base, bindings...)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serve(&answer{ResponseWriter: w, after: context.WithoutCancel(r.Context())}, r)
}

func (s *Service) serve(a *answer, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			s.deps.Panics.Note(p)
			a.fail(&Error{Status: http.StatusInternalServerError, ID: "InternalError"})
		}
		s.requests.WithLabelValues(methodLabel(r.Method), strconv.Itoa(a.status/100)+"xx").Inc()
		if r.Method != http.MethodGet && r.Method != http.MethodHead && a.user != "" {
			s.deps.Log.Info("request", "user", a.user, "method", r.Method, "path", r.URL.Path, "status", a.status)
		}
	}()
	h := a.Header()
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	if !hostheader.Addressed(r, s.deps.Own) {
		a.fail(&Error{Status: http.StatusMisdirectedRequest, ID: "GeneralError", Message: fmt.Sprintf("%.100q is no name or address of this service, or has another port", r.Host),
			Resolution: "Use an address of the appliance, or add the name to appliance.admin_hosts in the lab file."})
		return
	}
	if v := r.Header.Get("OData-Version"); v != "" && v != "4.0" {
		a.fail(&Error{Status: http.StatusPreconditionFailed, ID: "GeneralError", Message: "OData-Version: only 4.0 is supported"})
		return
	}
	r = withoutSlash(r)
	r.Body = http.MaxBytesReader(a.ResponseWriter, r.Body, maxBody)
	_, pattern := s.mux.Handler(r)
	if !needsNoLogin(r.Method, pattern) {
		if err := s.authenticate(a, r); err != nil {
			a.fail(err)
			return
		}
	}
	if pattern == "" {
		a.fail(errNotFound(r.URL.Path))
		return
	}
	s.mux.ServeHTTP(a, r)
}

// withoutSlash returns a request without the slash at the end of its path: both are the same resource (DSP0266 section 6.2).
func withoutSlash(r *http.Request) *http.Request {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == r.URL.Path {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = path, ""
	r = r.Clone(r.Context())
	r.URL = &u
	return r
}

// methodLabel is a label of the metric: a closed set.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete:
		return m
	}
	return "other"
}

// needsNoLogin reports whether everybody may make a request (DSP0266 section 13.3.2).
func needsNoLogin(method, pattern string) bool {
	switch pattern {
	case "/redfish", root, root + "/odata", root + "/$metadata":
		return method == http.MethodGet || method == http.MethodHead
	case sessionsPath:
		return method == http.MethodPost
	}
	return false
}
