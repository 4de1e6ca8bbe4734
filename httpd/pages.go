package httpd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/client/logins"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// embedded holds the templates and what they link to. It is never written to.
//
//go:embed pages
var embedded embed.FS

const (
	maxRows  = 200 // of a table; who looks for more filters
	maxBoots = 20  // of a host's page
)

// parsePages parses the templates of the dashboard.
func parsePages(now func() time.Time) (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"ago":     func(t time.Time) string { return ago(now().Sub(t)) },
		"until":   func(t time.Time) string { return until(t.Sub(now())) },
		"clock":   func(t time.Time) string { return t.Local().Format("2 Jan 15:04:05") },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"size":    func(n int64) string { return lab.Size(n).Rounded() },
		"took":    took,
		"offset":  func(from, to time.Time) string { return "+" + took(to.Sub(from)) },
		"steps":   steps,
		"words":   func(k fmt.Stringer) string { return strings.ReplaceAll(k.String(), "_", " ") },
		"pathesc": url.PathEscape,
		"nano":    func(t time.Time) string { return t.Format(time.RFC3339Nano) },
	}).ParseFS(embedded, "pages/*.html")
}

func (a *Admin) pageRoutes(mux *http.ServeMux, changes map[string]endpoint) {
	mux.Handle("/{$}", a.only(http.MethodGet, a.overview))
	mux.Handle("/hosts/{host}", a.only(http.MethodGet, a.hostPage))
	mux.Handle("GET /login", http.RedirectHandler("/", http.StatusSeeOther))
	mux.Handle("POST /login", http.HandlerFunc(a.login))
	mux.Handle("POST /logout", http.HandlerFunc(a.logout))
	mux.Handle("GET /static/{file}", http.HandlerFunc(a.static))
	act := func(path string, back func(*http.Request) string) {
		mux.Handle("/do/"+path, a.only(http.MethodPost, a.act(changes[path], back)))
	}
	toHost := func(r *http.Request) string { return "/hosts/" + url.PathEscape(r.PathValue("host")) }
	act("install/{host}", toHost)
	act("vms/{host}", toHost)
	act("backends/{balancer}/{backend}", func(*http.Request) string { return "/#balancers" })
	act("reload", func(*http.Request) string { return "/" })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.errorPage(w, &api.Error{Status: http.StatusNotFound, Message: "there is no such page"})
	})
}

// act does what a form asks for and sends the browser back to where it shows.
func (a *Admin) act(e endpoint, back func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := e(r); err != nil {
			a.refuse(w, r, err)
			return
		}
		http.Redirect(w, r, back(r), http.StatusSeeOther)
	}
}

func (a *Admin) login(w http.ResponseWriter, r *http.Request) {
	k := a.keys.Load()
	switch a.tryToken(k, r, strings.TrimSpace(r.PostFormValue("token"))) {
	case logins.Rejected:
		a.loginPage(w, http.StatusForbidden, "That is not the token.")
		return
	case logins.Limited:
		a.loginPage(w, http.StatusTooManyRequests, "That is not the token, and too many wrong ones came from your address. The right one is accepted at once.")
		return
	}
	cookie, started, _ := a.open.Start(peer(r), nil)
	if a.keys.Load() != k { // the token was replaced meanwhile
		a.endSession(started)
		a.loginPage(w, http.StatusForbidden, "That is not the token.")
		return
	}
	k.setCookie(w, r, cookie)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (a *Admin) logout(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("all") == "1" {
		a.deps.Log.Info("all sessions revoked", keyAddr, peer(r), "sessions", a.open.End(everySession))
	}
	k := a.keys.Load()
	if own, ok := a.open.Use(k.session(r)); ok {
		a.endSession(own)
	}
	k.clearCookie(w, r)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// static serves the style, the script and the icon, which hold nothing of the lab.
func (a *Admin) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := embedded.ReadFile(path.Join("pages/static", name))
	if err != nil || !fs.ValidPath(name) {
		http.NotFound(w, r)
		return
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	sum := sha256.Sum256(b)
	w.Header().Set("Content-Type", cmp.Or(types[path.Ext(name)], "application/octet-stream"))
	w.Header().Set("Etag", `"`+hex.EncodeToString(sum[:8])+`"`)
	w.Header().Set("Cache-Control", "no-cache") // ask again: an upgrade shows at once
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

// A page is what every page of the dashboard knows.
type page struct {
	Title  string
	Status api.Status
	Live   bool // refreshes itself

	Clusters   []api.Cluster
	AllUnknown []api.UnknownMachine
}

// maxCollected is how often a page is collected while labs are put in force.
const maxCollected = 3

// collect collects what a page shows, again if another lab was put in force meanwhile: a page shows one lab.
func collect[P any](a *Admin, page func() (P, error)) (p P, err error) {
	for range maxCollected {
		began := a.deps.Backend.Generation()
		if p, err = page(); a.deps.Backend.Generation() == began {
			break
		}
	}
	return p, err
}

func (a *Admin) page(ctx context.Context, title string) page {
	return page{Title: title, Status: a.deps.Backend.Status(ctx), Live: true,
		Clusters: a.deps.Backend.Clusters(ctx), AllUnknown: a.deps.Backend.Unknown(ctx)}
}

// A section is one of the first page that the menu leads to.
type section struct{ ID, Title string }

// Menu returns the sections of the first page, which has some only if there is something to show.
func (p page) Menu() []section {
	menu := []section{{"hosts", "Hosts"}, {"balancers", "Balancers"}, {"leases", "Leases"}}
	if len(p.AllUnknown) > 0 {
		menu = slices.Insert(menu, 1, section{"unknown", "Unknown machines"})
	}
	if len(p.Clusters) > 0 {
		menu = slices.Insert(menu, 0, section{"clusters", "Clusters"})
	}
	return menu
}

// render writes a page whole or not at all.
func (a *Admin) render(w http.ResponseWriter, code int, name string, data any) {
	writePage(w, code, a.execute(name, data))
}

// execute renders a page; nil: it cannot be rendered, and the log says why.
func (a *Admin) execute(name string, data any) []byte {
	var b bytes.Buffer
	if err := a.pages.ExecuteTemplate(&b, name, data); err != nil {
		a.deps.Log.Error("page not rendered", keyPath, name, keyErr, err)
		return nil
	}
	return b.Bytes()
}

func writePage(w http.ResponseWriter, code int, body []byte) {
	if body == nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// loginPage shows nothing of the lab, not even its name.
func (a *Admin) loginPage(w http.ResponseWriter, code int, wrong string) {
	a.render(w, code, "login.html", map[string]string{"Wrong": wrong})
}

func (a *Admin) errorPage(w http.ResponseWriter, e *api.Error) {
	a.render(w, e.HTTPStatus(), "error.html", map[string]any{"Error": e, "Code": http.StatusText(e.HTTPStatus())})
}

// An overviewPage is the dashboard's first page.
type overviewPage struct {
	page
	Query           string
	Hosts           []api.Host
	Matching        int // hosts that match Query; possibly more than are shown
	Total           int
	Counts          []count
	Leases          []api.Lease // those that hold an address
	Held            int         // leases that match Query; possibly more than are shown
	AllLeases       int
	Full            []api.Pool           // pools without a free address
	Unknown         []api.UnknownMachine // those that match Query
	UnknownMatching int                  // the same; possibly more than are shown
	Balancers       []api.Balancer
}

// A count is how many hosts are in an install state.
type count struct {
	State string
	N     int
}

func (a *Admin) overview(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.FormValue("q"))
	ctx := context.WithoutCancel(r.Context()) // the page may be for others too
	writePage(w, http.StatusOK, a.rendered.get(query, func() []byte {
		return a.building.run(func() []byte {
			p, _ := collect(a, func() (overviewPage, error) { return a.overviewOf(ctx, query), nil })
			return a.execute("overview.html", p)
		})
	}))
}

// overviewOf collects what the page shows, and needs no more memory for a lab with more leases.
func (a *Admin) overviewOf(ctx context.Context, query string) overviewPage {
	p := overviewPage{page: a.page(ctx, "Overview"), Query: query, Balancers: a.deps.Backend.Balancers(ctx)}
	m := &matcher{parts: bytes.Fields([]byte(strings.ToLower(query)))}
	leases := a.deps.Backend.Leases(ctx, api.LeaseQuery{Limit: maxRows, Keep: func(l *api.Lease) bool { return l.Holds() && m.lease(l) }})
	p.Leases, p.Held, p.AllLeases = leases.Leases, leases.Matching, leases.Holding
	hosts := a.deps.Backend.Hosts(ctx)
	p.Full = filter(a.deps.Backend.Pools(ctx), api.Pool.Full)
	p.Total, p.Counts = len(hosts), countStates(hosts)
	hosts = filter(hosts, func(h api.Host) bool { return m.words(hostWords(h)...) })
	unknown := filter(p.AllUnknown, func(u api.UnknownMachine) bool {
		return m.words(u.MAC.String(), u.IP.String(), u.Network, u.Pool, u.Name, u.Serial, u.UUID, u.Model())
	})
	p.UnknownMatching, p.Unknown = len(unknown), unknown[:min(maxRows, len(unknown))]
	p.Matching, p.Hosts = len(hosts), hosts[:min(maxRows, len(hosts))]
	return p
}

func filter[T any](items []T, keep func(T) bool) (kept []T) {
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

func hostWords(h api.Host) []string {
	words := []string{h.Name, h.FQDN, h.IP.String(), h.Network, h.Cluster, h.Role, h.Profile, h.Install, h.VM, h.MachineStage}
	for _, m := range h.MACs {
		words = append(words, m.String())
	}
	return words
}

func countStates(hosts []api.Host) (counts []count) {
	n := map[string]int{}
	for _, h := range hosts {
		n[h.MachineStage]++ // as the table below shows it
	}
	for state, hosts := range n {
		if state != "" {
			counts = append(counts, count{state, hosts})
		}
	}
	slices.SortFunc(counts, func(a, b count) int { return cmp.Compare(a.State, b.State) })
	return counts
}

// A hostPage is one machine: how it is, what it did, what can be done.
type hostPage struct {
	page
	Host  api.Host
	Known bool       // in the lab, or a machine of a pool
	Boots []api.Boot // the newest first
	Why   api.Diagnosis
	VM    *api.VM

	Console *consoleView // nil: none is kept
}

func (a *Admin) hostPage(w http.ResponseWriter, r *http.Request) {
	name, err := parseHost(r.PathValue("host"))
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	p, err := collect(a, func() (hostPage, error) { return a.hostPageOf(r, name) })
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	a.render(w, http.StatusOK, "host.html", p)
}

// hostPageOf collects what the page of a machine shows.
func (a *Admin) hostPageOf(r *http.Request, name string) (hostPage, error) {
	why, whyErr := a.deps.Backend.Why(r.Context(), name)
	if whyErr == nil {
		name = why.Host // by whatever the machine was asked for
	} else {
		why = api.Diagnosis{State: "unknown", Cause: "no diagnosis: " + api.AsError(whyErr).Message}
	}
	p := hostPage{Host: api.Host{Name: name}, Why: why}
	hosts := a.deps.Backend.Hosts(r.Context())
	if i := slices.IndexFunc(hosts, func(h api.Host) bool { return h.Name == name }); i >= 0 {
		p.Host, p.Known = hosts[i], true
	}
	p.page = a.page(r.Context(), name)
	boots, err := a.deps.Backend.Boots(r.Context(), name)
	if err != nil && (!p.Known || statusOf(err) != http.StatusNotFound) {
		return hostPage{}, err
	}
	boots = slices.Clone(boots)
	slices.Reverse(boots)
	p.Boots = boots[:min(maxBoots, len(boots))]
	if p.VM = a.vmOf(r, p.Host); p.VM != nil && p.Why.HypervisorSilent {
		p.VM.Err = "" // the diagnosis has it
	}
	p.Console = a.consoleOf(r.Context(), name)
	return p, nil
}

// vmOf returns the virtual machine of a host, nil for bare metal.
func (a *Admin) vmOf(r *http.Request, h api.Host) *api.VM {
	if h.VM == "" {
		return nil
	}
	vms, err := a.deps.Backend.VMs(r.Context())
	if err != nil {
		return &api.VM{Host: h.Name, State: h.VM, Err: api.AsError(err).Message}
	}
	if i := slices.IndexFunc(vms, func(v api.VM) bool { return v.Host == h.Name && v.Hypervisor == h.Hypervisor }); i >= 0 {
		return &vms[i]
	}
	return nil
}

// A step is one stage of a boot as it is drawn: done, here, failed or ahead.
type step struct {
	Stage event.Stage
	Class string
}

// steps draws how far a boot came. outcome is done, failed or anything else for "under way".
func steps(stage event.Stage, outcome string) []step {
	order := []event.Stage{event.StageAddress, event.StageFirmware, event.StageScript, event.StageFiles, event.StageConfig, event.StageInstall}
	at := slices.Index(order, stage)
	drawn := make([]step, len(order))
	for i, s := range order {
		drawn[i] = step{s, "ahead"}
		switch {
		case i < at, i == at && (outcome == "done" || outcome == "ended"):
			drawn[i].Class = "done"
		case i == at && (outcome == "failed" || outcome == "stopped"):
			drawn[i].Class = "failed"
		case i == at:
			drawn[i].Class = "here"
		}
	}
	return drawn
}

// Outcome is the word that steps takes for a host.
func (p overviewPage) Outcome(h api.Host) string { return outcome(h) }

// Outcome is the word that steps takes for a host.
func (p hostPage) Outcome(h api.Host) string { return outcome(h) }

func outcome(h api.Host) string {
	switch h.MachineStage {
	case api.MachineStopped:
		return "failed"
	case api.MachineBooting, api.MachineInstalling:
		return "booting"
	}
	return "done"
}

func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}

func until(d time.Duration) string {
	if d <= 0 {
		return "expired"
	}
	return "in " + strings.TrimSuffix(ago(max(d, time.Second)), " ago")
}

func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
