package httpd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/host/client/webserver"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A BootService decides what a machine boots. Its errors may carry a status in a method HTTPStatus() int; without one they are
// answered with 500. "Not yet" must be 503: Ignition takes everything below 500 as final.
type BootService interface {
	// Script renders an iPXE script for the machine that asks from that address. Received is called on it once all of it was sent, but
	// not for HEAD.
	Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) (*boot.Script, error)
	// Config returns a config document for a request that carries token. Read is called on it once all of it was sent, but
	// not for HEAD, and then Release.
	Config(ctx context.Context, mac lab.MAC, token, name string, from netip.Addr) (*boot.Document, error)
	// Answer returns the config document of the machine that has these MACs and asks from that address.
	Answer(ctx context.Context, macs []lab.MAC, from netip.Addr) (*boot.Document, error)
	// Report takes a machine's inventory, the query of a URL as it arrived.
	Report(ctx context.Context, mac lab.MAC, query string, from netip.Addr) error
	// Done takes "the install is done".
	Done(ctx context.Context, mac lab.MAC, token string, from netip.Addr) error
}

// Leases map addresses to NICs.
type Leases interface {
	// MACOf returns the NIC that has an address by lease or by a reservation of a lab; false: no NIC has it.
	MACOf(*lab.Lab, netip.Addr) (lab.MAC, bool)
}

// Mirrors serve files of upstream archives.
type Mirrors interface {
	// Open returns a file of m; path is valid by fs.ValidPath, method GET or HEAD. Its errors carry a status, as a BootService's.
	Open(ctx context.Context, m *lab.Mirror, path, method string) (*mirror.File, error)
}

// A Table is what Boot answers from, beside its BootService. It is immutable.
type Table struct {
	lab     *lab.Lab
	files   *files.Files
	mirrors map[string]*lab.Mirror // by name
}

// Compile makes the table of a lab whose files are compiled already: TFTP serves the same.
func Compile(l *lab.Lab, files *files.Files) *Table {
	t := &Table{lab: l, files: files, mirrors: make(map[string]*lab.Mirror, len(l.Mirrors))}
	for _, m := range l.Mirrors {
		t.mirrors[m.Name] = m
	}
	return t
}

// BootConfig is the configuration of Boot. The zero value is the default.
type BootConfig struct {
	Limits Limits
}

// BootDeps is what Boot needs. All fields are required.
type BootDeps struct {
	Table      func() *Table // never returns nil
	Boot       BootService
	Firmware   fs.FS // network boot programs, by file name
	Leases     Leases
	Mirrors    Mirrors
	Events     event.Recorder
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Now        func() time.Time
	Panics     *panics.Server // counts contained panics; nil: they are only logged
}

// Boot is the HTTP server for machines.
type Boot struct {
	limits  Limits
	deps    BootDeps
	metrics *metrics
	web     *webserver.Server
}

// NewBoot returns a server. The error is that its metrics are registered already.
func NewBoot(cfg BootConfig, deps BootDeps) (*Boot, error) {
	required.Fields(deps, "Panics")
	m, err := newMetrics(deps.Registerer, "http", routeNames())
	if err != nil {
		return nil, fmt.Errorf("new http server: %w", err)
	}
	deps.Log = deps.Log.With("server", "httpd", "listener", "http")
	deps.Panics = cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "httpd"))
	limits := cfg.Limits.withDefaults()
	return &Boot{limits: limits, deps: deps, metrics: m, web: limits.server(m, deps.Log)}, nil
}

// Serve answers on all listeners until ctx ends, then lets transfers finish for Limits.Drain, and returns nil. It closes no
// listener, and may be called once for each.
func (b *Boot) Serve(ctx context.Context, listeners ...net.Listener) error {
	bindings := make([]webserver.Binding, len(listeners))
	for i, l := range listeners {
		bindings[i] = webserver.Binding{Listener: l, Handler: b}
	}
	// A transfer may outlive ctx, and so may what the boot service records for it.
	return b.web.Run(ctx, context.WithoutCancel(ctx), bindings...)
}

// A request is one request of a machine while it is answered.
type request struct {
	*http.Request
	target target
	table  *Table
	from   netip.Addr
	start  time.Time
}

// recordContext returns the context in which the boot service records the request: that a machine hangs up as soon as it has its
// document, or has reported that it is done, changes nothing.
func (q *request) recordContext() context.Context { return context.WithoutCancel(q.Context()) }

// ServeHTTP implements http.Handler.
func (b *Boot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{Request: r, table: b.deps.Table(), target: parsePath(r.URL.Path), from: peer(r), start: b.deps.Now()}
	reply := newReply(w, r, b.limits.Stall)
	b.metrics.inFlight.Inc()
	defer func() {
		took := b.took(q)
		b.metrics.inFlight.Dec()
		b.metrics.count(int(q.target.route), reply, took)
		b.log(q, reply, took)
	}()
	guard(b.deps.Panics, reply, q.target.token, func() { b.answer(reply, q) })
}

// peer returns the client's address; the zero address if the transport has none.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

func (b *Boot) log(q *request, w *reply, took time.Duration) {
	if !b.deps.Log.Enabled(q.Context(), slog.LevelDebug) {
		return
	}
	b.deps.Log.LogAttrs(q.Context(), slog.LevelDebug, "boot request",
		slog.String(keyMethod, q.Method), slog.String(keyPath, q.target.String()), slog.Any(keyAddr, q.from),
		slog.Int(keyStatus, w.code), slog.Int64(keyBytes, w.sent), slog.Duration(keyDur, took))
}

func (b *Boot) answer(w *reply, q *request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if q.target.route == routeNone {
		b.nowhere(w, q, "nothing is served at this path")
		return
	}
	if !allow(w, q) {
		return
	}
	switch q.target.route {
	case routeScript:
		b.script(w, q)
	case routeFirmware:
		b.firmware(w, q)
	case routeFile:
		b.file(w, q)
	case routeConfig:
		b.config(w, q)
	case routeDone:
		b.done(w, q)
	case routeReport:
		b.report(w, q)
	case routeAnswer:
		b.post(w, q)
	case routeMirror:
		b.mirror(w, q)
	}
}

// allow answers 405 to methods that the route does not have. HEAD of done/ would look like a report and be none.
func allow(w http.ResponseWriter, q *request) bool {
	methods := "GET, HEAD"
	switch q.target.route {
	case routeDone, routeReport:
		methods = "GET, POST"
	case routeAnswer:
		methods = "POST"
	}
	if first, second, _ := strings.Cut(methods, ", "); q.Method == first || q.Method == second {
		return true
	}
	w.Header().Set("Allow", methods)
	refuse(w, http.StatusMethodNotAllowed)
	return false
}

// refuse answers a machine, which reads the status and nothing else. Reasons go to the timeline.
func refuse(w http.ResponseWriter, code int) {
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5") // iPXE keeps to it
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, http.StatusText(code), code)
}

// refuseErr answers an error of the boot service. One with a status is a refusal, which that has recorded. One without is a fault of the
// daemon: 500, which clients retry.
func (b *Boot) refuseErr(w http.ResponseWriter, q *request, err error) {
	code := statusOf(err)
	if code == http.StatusInternalServerError {
		b.deps.Log.Warn("request failed", keyMAC, q.target.mac, keyAddr, q.from, keyPath, q.target.String(), keyStatus, code, keyErr,
			redact(err.Error(), q.target.token))
	}
	refuse(w, code)
}

// redact takes a token out of a text that is to be logged.
func redact(text, token string) string {
	if token == "" {
		return text
	}
	return strings.ReplaceAll(text, token, "…")
}

func (b *Boot) script(w *reply, q *request) {
	script, err := b.deps.Boot.Script(q.recordContext(), q.target.mac, q.from, q.target.name)
	if err != nil {
		b.refuseErr(w, q, err)
		return
	}
	if !b.whole(w, q, len(script.Body)) || !b.send(w, q, plain(script.Body)) || q.Method == http.MethodHead {
		return
	}
	if err := script.Received(q.recordContext()); err != nil && statusOf(err) == http.StatusInternalServerError { // else it is recorded
		b.deps.Log.Warn("script served, but the boot was not stored", keyMAC, q.target.mac, keyAddr, q.from, keyErr, err)
	}
}

// plain is a document of lines, such as a script.
func plain(text []byte) *boot.Document {
	return boot.NewDocument("text/plain; charset=utf-8", text, nil, nil)
}

func (b *Boot) config(w *reply, q *request) {
	t := q.target
	doc, err := b.deps.Boot.Config(q.Context(), t.mac, t.token, t.name, q.from)
	if err != nil {
		b.refuseErr(w, q, err)
		return
	}
	b.serve(w, q, doc)
}

// serve sends a config document and records the read of it. A script needs no acknowledgement: iPXE for BIOS leaves without one when the script
// boots the disk.
func (b *Boot) serve(w *reply, q *request, doc *boot.Document) {
	defer doc.Release()
	if !b.whole(w, q, len(doc.Body)) || !b.send(w, q, doc) || q.Method == http.MethodHead {
		return
	}
	if !webserver.Of(q.Request).Acknowledged() {
		b.aborted(w, q, errNotAcknowledged)
		return
	}
	if err := doc.Read(q.recordContext(), b.took(q)); err != nil {
		b.deps.Log.Warn("document served, but the read was not stored", keyMAC, q.target.mac, keyAddr, q.from, keyErr, redact(err.Error(), q.target.token))
	}
}

// errNotAcknowledged is why a document that was sent does not count as received.
var errNotAcknowledged = errors.New("the client did not acknowledge the end of the document")

// send answers with a rendered document and reports whether all of it left. It is never cached: the next one differs.
func (b *Boot) send(w *reply, q *request, doc *boot.Document) bool {
	set(w.Header(), "Cache-Control", "no-store", "Content-Type", doc.ContentType, "Content-Length", strconv.Itoa(len(doc.Body)))
	w.WriteHeader(http.StatusOK)
	if q.Method == http.MethodHead {
		return true
	}
	_, _ = w.Write(doc.Body) // finish returns its error
	if err := w.finish(); err != nil {
		b.aborted(w, q, err)
		return false
	}
	return true
}

// wantsWhole reports whether a Range header asks for all of a document of that size, which many clients write as "bytes=0-". Units that are
// unknown are ignored (RFC 9110 section 14.2).
func wantsWhole(header string, size int) bool {
	bytes, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return true
	}
	last, ok := strings.CutPrefix(strings.TrimSpace(bytes), "0-")
	if !ok || last == "" {
		return ok
	}
	n, err := strconv.Atoi(last)
	return err == nil && n >= size-1
}

// whole reports whether all of a document of that size is requested. It refuses a part: to send all instead would count as a read, though
// clients that continue a download give up on it.
func (b *Boot) whole(w *reply, q *request, size int) bool {
	part := q.Header.Get("Range")
	if wantsWhole(part, size) {
		return true
	}
	refuse(w, http.StatusRequestedRangeNotSatisfiable)
	kind := event.ConfigRefused
	if q.target.route == routeScript {
		kind = event.ScriptRefused
	}
	b.record(q, event.Event{Kind: kind, Reason: event.BadRequest, Err: fmt.Sprintf("a part was requested (Range: %.100q): only the whole document is sent", redact(part, q.target.token))})
	return false
}

func (b *Boot) report(w *reply, q *request) {
	b.drain(w, q)
	b.acknowledge(w, q, b.deps.Boot.Report(q.recordContext(), q.target.mac, q.URL.RawQuery, q.from))
}

func (b *Boot) done(w *reply, q *request) {
	b.drain(w, q)
	b.acknowledge(w, q, b.deps.Boot.Done(q.recordContext(), q.target.mac, q.target.token, q.from))
}

// acknowledge answers a report: ok, or the boot service's error.
func (b *Boot) acknowledge(w *reply, q *request, err error) {
	if err != nil {
		b.refuseErr(w, q, err)
		return
	}
	b.send(w, q, plain([]byte("ok\n")))
}

// drain discards a body: installers post reports, and a body left unread could reset the connection
// before our answer arrives.
func (b *Boot) drain(w *reply, q *request) {
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, q.Body, maxBody))
}

// maxNICs is how many NICs of a machine are looked at.
const maxNICs = 64

// post answers an installer that POSTs its machine's inventory, as Proxmox's does, with the machine's config document.
func (b *Boot) post(w *reply, q *request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	answer, err := b.deps.Boot.Answer(q.Context(), nics(body), q.from)
	if err != nil {
		b.refuseErr(w, q, err)
		return
	}
	b.serve(w, q, answer)
}

// nics returns the MACs that a report names; none for what is not such a report.
func nics(report []byte) (macs []lab.MAC) {
	var r struct {
		NetworkInterfaces []struct {
			MAC string `json:"mac"`
		} `json:"network_interfaces"`
	}
	if json.Unmarshal(report, &r) != nil {
		return nil
	}
	for _, nic := range r.NetworkInterfaces[:min(len(r.NetworkInterfaces), maxNICs)] {
		if mac, err := lab.ParseMAC(nic.MAC); err == nil {
			macs = append(macs, mac)
		}
	}
	return macs
}
