package lab

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// BalanceMode is the layer that a balancer works on.
type BalanceMode string

// The modes of a balancer.
const (
	ModeTCP  BalanceMode = "tcp"
	ModeHTTP BalanceMode = "http"
	ModeUDP  BalanceMode = "udp"
)

// Algorithm is how a balancer picks a backend.
type Algorithm string

// The algorithms of a balancer.
const (
	RoundRobin Algorithm = "roundrobin"
	LeastConn  Algorithm = "leastconn"
	SourceHash Algorithm = "source"
)

// A Balancer is one frontend and its backends.
type Balancer struct {
	Pos            Pos
	Name           string   // a derived one is "<cluster>-<service>", such as mycluster-api
	Cluster        *Cluster // nil: it is one of the lab file
	Listen         Binds
	Mode           BalanceMode
	Balance        Algorithm
	Check          Check
	Backends       []Backend
	Match          Match
	SendProxy      int            // PROXY protocol version to backends: 0 off, 1, 2
	AcceptProxy    []netip.Prefix // peers whose PROXY header is accepted
	MaxConnections int            // 0: no limit
	Queue          int            // clients that may wait while every backend has its MaxConnections
	Timeouts       Timeouts
	Log            AccessLog
	OnDown         OnDown
	Certificates   []string // absolute files; without ACME none: no TLS termination
	ACME           *ACME    // nil: none
	Protocol       BackendProtocol
	BackendTLS     BackendTLS
	Redirect       Redirect
	TrustedProxies []netip.Prefix // peers whose Forwarded and X-Forwarded fields are kept
	Sticky         string         // name of the cookie that keeps a client at its backend; empty: none
	Names          []string       // in DNS, without a final dot
	Responses      int            // of mode udp: datagrams that a backend answers to each of a client's; AnyResponses: not known
	Health         bool           // Names have the addresses of healthy backends, not that of Listen
}

// AnyResponses is the Balancer.Responses of a protocol whose sessions end when they are idle.
const AnyResponses = -1

// MaxWeight is the largest weight of a backend, as HAProxy's; the smallest is 1.
const MaxWeight = 256

// A Backend is one server of a balancer.
type Backend struct {
	Name string // the host's name where it is a host, which several may have; else the address, without its port, or the name in DNS
	Host *Host  // nil: an address from outside the lab
	// With port 0: the port that the client has connected to. Without an address: that of Host's lease, else those of Name in DNS.
	Addr   netip.AddrPort
	Backup bool // used only while every other backend is down
	Weight int  // share of new connections, relative to the others; 0: 1

	MaxConnections int // at one time; 0: no limit

	NotFor []netip.Addr // clients that it never gets, sorted
}

// Dynamic reports whether the address of a backend is learned at run time.
func (b *Backend) Dynamic() bool { return !b.Addr.Addr().IsValid() }

// AddrText returns the address of a backend, or its name if it is dynamic, without a port if it has the client's.
func (b *Backend) AddrText() string {
	if b.Dynamic() && b.Addr.Port() != 0 {
		return b.Name + ":" + strconv.Itoa(int(b.Addr.Port()))
	} else if b.Dynamic() {
		return b.Name
	}
	return BackendText(b.Addr)
}

// BackendText returns the address of a backend, without a port if it has the client's; empty: it has none.
func BackendText(a netip.AddrPort) string {
	switch {
	case !a.Addr().IsValid():
		return ""
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}

// Match says which connections of a shared listen address are this balancer's. Empty matches everything that no other
// balancer of the address matches. Patterns are lower case, "*.example.com" matches any name below example.com.
//
// Where Host and Path are given, both must match. A path matches itself and what is below it; it has no "/" at the end.
type Match struct {
	SNI  []string
	Host []string
	Path []string // of mode http
}

// CheckKind is how a backend's health is checked.
type CheckKind string

// The kinds of health check.
const (
	CheckNone  CheckKind = "none"
	CheckTCP   CheckKind = "tcp"
	CheckTLS   CheckKind = "tls" // a handshake, certificate not verified
	CheckHTTP  CheckKind = "http"
	CheckHTTPS CheckKind = "https"
	CheckDNS   CheckKind = "dns" // a query over UDP
)

// Statuses are HTTP statuses, as "200,301-302"; empty: any 2xx or 3xx. They are text so that checks can be compared.
type Statuses string

// Has reports whether a status is one of them.
func (s Statuses) Has(status int) bool {
	if s == "" {
		return status >= 200 && status <= 399
	}
	for part := range strings.SplitSeq(string(s), ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		low, _ := strconv.Atoi(from)
		high, _ := strconv.Atoi(to)
		if status >= low && status <= high {
			return true
		}
	}
	return false
}

// String says which they are.
func (s Statuses) String() string {
	if s == "" {
		return "2xx or 3xx"
	}
	return strings.ReplaceAll(string(s), ",", ", ")
}

// A Check is a health check.
type Check struct {
	Kind         CheckKind
	Path         string
	Port         uint16 // 0: the backend's own
	Expect       Statuses
	Name         string // whose SOA record is asked for, in lower case, without a final dot; empty: the root, with any answer
	Host         string // of the request; empty: the address
	SNI          string // TLS server name; empty: none
	CAFile       string // absolute file that certificates are verified with; empty: any certificate passes
	Interval     time.Duration
	FastInterval time.Duration // while the condition may be about to change; 0: Interval
	Timeout      time.Duration
	// Silence is how long a client may wait for a first response before its backend is looked at; 0: the balancer's default; SilenceOff: any time.
	Silence time.Duration
	Rise    int // successes in a row that make a backend healthy
	Fall    int // failures in a row that make it unhealthy
}

// SilenceOff lets a backend be silent for any time.
const SilenceOff = time.Duration(-1)

// Timeouts are a balancer's.
type Timeouts struct {
	Connect time.Duration
	Idle    time.Duration // no byte in either direction
	Queue   time.Duration // the wait while every backend has its MaxConnections

	// Of mode http.
	Server    time.Duration // from the request to the head of the response
	Request   time.Duration // for a request's head
	Body      time.Duration // between two parts of a request's body
	KeepAlive time.Duration // between two requests of a connection
}

// WithDefaults returns t with the defaults of mode http for what is zero.
func (t Timeouts) WithDefaults() Timeouts {
	t.Queue = cmp.Or(t.Queue, t.Connect, 5*time.Second)
	t.Server = cmp.Or(t.Server, time.Minute)
	t.Request = cmp.Or(t.Request, 10*time.Second)
	t.Body = cmp.Or(t.Body, time.Minute)
	t.KeepAlive = cmp.Or(t.KeepAlive, time.Minute)
	return t
}

// AccessLog is which requests of mode http, or connections of mode tcp, are logged.
type AccessLog string

// The access logs.
const (
	LogNone     AccessLog = "none"
	LogErrors   AccessLog = "errors" // what ended early, and 5xx
	LogRequests AccessLog = "requests"
)

// Redirect is where a balancer of mode http sends clients instead of proxying their requests.
type Redirect string

// The redirects.
const (
	RedirectOff   Redirect = "off"
	RedirectHTTPS Redirect = "https" // requests without TLS get the same URL with https
)

// BackendProtocol is what backends of mode http speak.
type BackendProtocol string

// The protocols of backends.
const (
	BackendHTTP1 BackendProtocol = "http1"
	BackendH2C   BackendProtocol = "h2c" // HTTP/2 without TLS, as gRPC servers in a lab do
	BackendH2    BackendProtocol = "h2"  // HTTP/2 with TLS
)

// ACME is where a balancer gets certificates (RFC 8555).
type ACME struct {
	Directory string   // URL
	CAFile    string   // absolute, of who signs the server's own certificate; empty: the system's authorities
	Email     string   // of the account; empty: none
	Names     []string // lower case, each gets a certificate
}

// EndsTLS reports whether b ends its clients' TLS.
func (b *Balancer) EndsTLS() bool { return len(b.Certificates) > 0 || b.ACME != nil }

// BackendTLS is how TLS is spoken with backends of mode http. The zero value is: not.
type BackendTLS struct {
	On         bool
	CAFile     string // absolute; empty: the system's authorities
	Name       string // that certificates must have; empty: the backend's FQDN or address
	Unverified bool   // any certificate will do
}

// OnDown is what becomes of the open connections of a backend that goes down.
type OnDown string

// What becomes of connections.
const (
	OnDownKeep  OnDown = "keep"
	OnDownClose OnDown = "close"
)
