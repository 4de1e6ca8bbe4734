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

const heartbeat = 15 * time.Second // of a stream without news

// An endpoint answers one question with something that travels as JSON.
type endpoint func(r *http.Request) (any, error)

func (a *Admin) apiRoutes(mux *http.ServeMux, why trust) {
	handle := func(path, method string, h http.HandlerFunc) {
		mux.Handle(api.Prefix+path, a.only(method, h))
	}
	ask := func(path string, e endpoint) { handle(path, http.MethodGet, a.json(e)) }
	// params are the parameters that a request may have.
	do := func(path string, e endpoint, params ...string) {
		handle(path, http.MethodPost, a.json(a.changes(onlyParams(e, params))))
	}

	ask("status", func(r *http.Request) (any, error) { return a.deps.Status.Status(r.Context()), nil })
	ask("hosts", func(r *http.Request) (any, error) { return list(a.deps.Inventory.Hosts(r.Context())), nil })
	handle("leases", http.MethodGet, a.getLeases)
	ask("pools", func(r *http.Request) (any, error) { return list(a.deps.Leases.Pools(r.Context())), nil })
	ask("balancers", func(r *http.Request) (any, error) { return list(a.deps.Balancers.Balancers(r.Context())), nil })
	ask("clusters", func(r *http.Request) (any, error) { return list(a.deps.Clusters.Clusters(r.Context())), nil })
	ask("vms", a.getVMs)
	ask("vms/plan", a.getVMPlan)
	handle("unknown", http.MethodGet, a.getUnknown)
	ask("unknown/{mac}", a.getAdoption)
	handle("timeline/{host}", http.MethodGet, a.getTimeline)
	handle("lab", http.MethodGet, a.getLab)
	handle("backup", http.MethodGet, a.getBackup)
	do("install/{host}", a.postInstall, "done", "now")
	do("vms/{host}", a.postVM, "action", "timeout", "force", "disks")
	do("power/{host}", a.postPower, "action")
	do("power/{host}/boot", a.postBoot, "device", "always")
	do("backends/{balancer}/{backend}", a.postBackend, "action")
	do("clusters/{cluster}/up", func(r *http.Request) (any, error) { return a.deps.Clusters.Up(r.Context(), r.PathValue("cluster")) })
	do("clusters/{cluster}/down", func(r *http.Request) (any, error) { return a.deps.Clusters.Down(r.Context(), r.PathValue("cluster")) })
	do("leases/{addr}/release", a.postRelease)
	do(pathImport, a.postImport, "replace", "check")
	do("reload", a.postReload, "force")
	ask("sessions", func(*http.Request) (any, error) { return a.open.list(), nil })
	do("sessions/revoke", a.postRevoke)
	ask("state", func(r *http.Request) (any, error) { return a.deps.State.State(r.Context()), nil })
	do("state/accept-new", func(r *http.Request) (any, error) {
		return a.deps.State.AcceptState(r.Context(), r.FormValue("database"))
	}, "database")
	ask("token", func(*http.Request) (any, error) { return a.getToken(why) })
	ask("dns/resolve", func(r *http.Request) (any, error) {
		return a.deps.Names.Resolve(r.Context(), api.DNSQuestion{Name: r.FormValue("name"), Type: r.FormValue("type"), As: r.FormValue("as"), DO: r.FormValue("do") == "1"})
	})
	do("dns/flush", func(r *http.Request) (any, error) { return a.deps.Names.FlushDNS(r.Context(), r.FormValue("name")) }, "name")
	ask("dns/updates", func(r *http.Request) (any, error) { return a.deps.Names.DNSUpdates(r.Context()), nil })
	do("dns/updates/delete", func(r *http.Request) (any, error) {
		return a.deps.Names.DeleteDNSUpdate(r.Context(), r.FormValue("name"), r.FormValue("type"))
	}, "name", "type")
	handle("dns/log/{client}", http.MethodGet, a.getQueries)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, &api.Error{Status: http.StatusNotFound, Message: "there is no " + r.URL.Path, Hint: "docs/admin.md lists the API"})
	})
}

// onlyParams refuses requests that have other parameters than these: a misspelled done=1 would arm a machine that is installed.
func onlyParams(e endpoint, params []string) endpoint {
	return func(r *http.Request) (any, error) {
		if err := r.ParseForm(); err != nil {
			return nil, &api.Error{Status: http.StatusBadRequest, Message: "the parameters cannot be read: " + err.Error()}
		}
		for name := range r.Form {
			if !slices.Contains(params, name) {
				return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("parameter %.60q is not known", name), Hint: "want " + cmp.Or(strings.Join(params, ", "), "none")}
			}
		}
		return e(r)
	}
}

// list makes an empty list of none, so that clients need not know of null.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

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
		a.deps.Log.Warn("request not answered", keyMethod, r.Method, keyErr, redact(err.Error(), a.keys.token))
	}
	if areaOf(r.URL.Path) == areaPage {
		a.errorPage(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_ = json.NewEncoder(w).Encode(e)
}

// hostOf returns the {host} of a path: a name, or a MAC in its one spelling.
func hostOf(r *http.Request) (string, error) { return parseHost(r.PathValue("host")) }

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

// choose returns the parameter name where it is one of the choices.
func choose[T ~string](r *http.Request, name string, choices ...T) (T, error) {
	v := T(r.FormValue(name))
	if slices.Contains(choices, v) {
		return v, nil
	}
	return v, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%s=%.60q is not known", name, string(v)), Hint: fmt.Sprintf("want one of %v", choices)}
}

func (a *Admin) getVMPlan(r *http.Request) (any, error) {
	plan, err := a.deps.Machines.VMPlan(r.Context(), r.URL.Query()["host"])
	return list(plan), err
}

func (a *Admin) getVMs(r *http.Request) (any, error) {
	vms, err := a.deps.Machines.VMs(r.Context())
	return list(vms), err
}

func (a *Admin) getTimeline(w http.ResponseWriter, r *http.Request) {
	host, err := hostOf(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	if r.FormValue("follow") == "1" && r.Method == http.MethodGet {
		a.follow(w, r, host)
		return
	}
	a.json(func(r *http.Request) (any, error) {
		boots, err := a.deps.Timelines.Boots(r.Context(), host)
		return list(boots), err
	})(w, r)
}

// follow streams the events of a host.
func (a *Admin) follow(w http.ResponseWriter, r *http.Request, host string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, err := a.deps.Timelines.Follow(ctx, host)
	stream(a, w, r, events, err)
}

// getQueries streams the DNS queries of a client.
func (a *Admin) getQueries(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	queries, err := a.deps.Names.FollowDNS(ctx, r.PathValue("client"))
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
			_, err = io.WriteString(w, "\n")
		case line, ok := <-lines:
			if !ok {
				return
			}
			err = json.NewEncoder(w).Encode(line)
		}
		if cookie := a.keys.session(r); err != nil || cookie != "" && !a.open.known(cookie) { // the session was revoked
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
	text, err := a.deps.Inventory.Plan(r.Context(), host, secrets)
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
	if err := a.deps.Backups.Backup(r.Context(), w); err != nil {
		a.deps.Log.Warn("backup not completed", keyErr, err)
	}
}

func (a *Admin) postInstall(r *http.Request) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	done, now, err := installOptions(r)
	switch {
	case err != nil:
		return nil, err
	case done:
		return a.deps.Installer.MarkInstalled(r.Context(), host)
	}
	cycle := api.CycleLater
	if now {
		cycle = api.CycleNow
	}
	return a.deps.Installer.Install(r.Context(), host, cycle)
}

// installOptions returns the parameters of an install, of the API or of a page. What it does not know is an error.
func installOptions(r *http.Request) (done, now bool, err error) {
	if err := r.ParseForm(); err != nil {
		return false, false, &api.Error{Status: http.StatusBadRequest, Message: "the parameters cannot be read: " + err.Error()}
	}
	for name, values := range r.Form {
		known := name == "done" || name == "now"
		if !known || len(values) != 1 || values[0] != "0" && values[0] != "1" {
			return false, false, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("parameter %s=%s is not known", name, strings.Join(values, ",")),
				Hint: "want done=1 or now=1, or neither to arm the host"}
		}
	}
	done, now = r.Form.Get("done") == "1", r.Form.Get("now") == "1"
	if done && now {
		return false, false, &api.Error{Status: http.StatusBadRequest, Message: "done=1 and now=1 exclude each other"}
	}
	return done, now, nil
}

// getUnknown builds few lists at one time, since each goes through the whole lease book: a hundred readers wait for each other
// instead of needing memory for a hundred.
func (a *Admin) getUnknown(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.building.run(func() []byte {
		var b bytes.Buffer
		_ = json.NewEncoder(&b).Encode(list(a.deps.Discovered.Discovered(r.Context()))) // its texts are valid
		return b.Bytes()
	}))
}

func (a *Admin) getAdoption(r *http.Request) (any, error) {
	mac, err := lab.ParseMAC(r.PathValue("mac"))
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not a MAC", r.PathValue("mac")), Hint: "want one such as 52-54-00-2c-01-10"}
	}
	return a.deps.Discovered.Adoption(r.Context(), mac)
}

func (a *Admin) postVM(r *http.Request) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	action, err := choose(r, "action", api.VMCreate, api.VMStart, api.VMStop, api.VMDelete, api.VMApply, api.VMForget)
	if err != nil {
		return nil, err
	}
	opts := api.VMOptions{Force: r.FormValue("force") == "1", Disks: r.FormValue("disks") == "1"}
	if text := r.FormValue("timeout"); text != "" {
		if opts.Timeout, err = time.ParseDuration(text); err != nil || opts.Timeout <= 0 || opts.Timeout > api.MaxVMTimeout {
			return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("timeout=%.60q is no timeout", text), Hint: "want one such as 90s or 10m, at most 24h"}
		}
	}
	return a.deps.Machines.VM(r.Context(), host, action, opts)
}

func (a *Admin) postPower(r *http.Request) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	action, err := choose(r, "action", api.PowerStatus, api.PowerOn, api.PowerOff, api.PowerCycle)
	if err != nil {
		return nil, err
	}
	return a.deps.Machines.Power(r.Context(), host, action)
}

func (a *Admin) postBoot(r *http.Request) (any, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	device, err := choose(r, "device", api.BootDefault, api.BootNetwork, api.BootDisk, api.BootCD)
	if err != nil {
		return nil, err
	}
	return a.deps.Machines.SetBoot(r.Context(), host, device, r.FormValue("always") == "1")
}

func (a *Admin) postBackend(r *http.Request) (any, error) {
	action, err := choose(r, "action", api.BackendDrain, api.BackendReady)
	if err != nil {
		return nil, err
	}
	return a.deps.Balancers.Backend(r.Context(), r.PathValue("balancer"), r.PathValue("backend"), action)
}

func (a *Admin) postReload(r *http.Request) (any, error) {
	force := api.Careful
	if r.FormValue("force") == "1" {
		force = api.Forced
	}
	reload, err := a.deps.Reloader.Reload(r.Context(), force)
	if err != nil {
		return nil, refusedReload(err)
	}
	return reload, nil
}

// refusedReload makes an answer of a refused lab: the caller's fault, not the daemon's, unless the error says otherwise.
func refusedReload(err error) error {
	if statusOf(err) != http.StatusInternalServerError {
		return err
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Message: "the lab was refused, the last good one stays in force", Reason: err.Error()}
}

// postRevoke ends all sessions of the dashboard. The token stays valid.
func (a *Admin) postRevoke(r *http.Request) (any, error) {
	n := a.open.revoke()
	a.deps.Log.Info("all sessions revoked", keyAddr, peer(r), "sessions", n)
	return api.Revoked{Sessions: n}, nil
}

// getToken returns the token over the Unix socket only: a page that reaches the API by TCP must not read it.
func (a *Admin) getToken(why trust) (any, error) {
	if why != bySocket {
		return nil, &api.Error{Status: http.StatusForbidden, Message: "the token is available over the Unix socket only", Hint: "run bootlab token on the daemon's machine"}
	}
	return api.Token{Token: a.keys.token}, nil
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
	page := a.deps.Inventory.Leases(r.Context(), q)
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
		page = a.deps.Inventory.Leases(r.Context(), q)
	}
	end := "]\n"
	if before == '[' {
		end = "[]\n"
	}
	_, _ = io.WriteString(w, end)
}

// leaseQuery reads the parameters of GET leases. Without a limit it is 0.
func (a *Admin) leaseQuery(r *http.Request) (q api.LeaseQuery, err error) {
	if err := r.ParseForm(); err != nil {
		return q, &api.Error{Status: http.StatusBadRequest, Message: err.Error()}
	}
	f, err := api.ParseLeaseFilter(r.Form)
	if err != nil {
		return q, err
	}
	now := a.deps.Now()
	q.Keep = func(l *api.Lease) bool { return f.Keep(*l, now) }
	if s := r.Form.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return q, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("limit=%.60q is not a number of leases", s), Hint: fmt.Sprintf("want 1 to %d", maxLimit)}
		}
	}
	if s := r.Form.Get("cursor"); s != "" {
		if q.After, err = netip.ParseAddr(s); err != nil {
			return q, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("cursor=%.60q is not valid", s), Hint: "take it from the header Link of the page before"}
		}
	}
	return q, nil
}

// postRelease ends a lease. DHCP cannot notify the machine (RFC 3203 could, but no client implements it), so the response says
// what that means for it.
func (a *Admin) postRelease(r *http.Request) (any, error) {
	addr, err := netip.ParseAddr(r.PathValue("addr"))
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not an address", r.PathValue("addr")), Hint: "want one such as 192.168.16.130"}
	}
	found := a.deps.Inventory.Leases(r.Context(), api.LeaseQuery{Limit: 1, Keep: func(l *api.Lease) bool { return l.IP == addr.Unmap() && l.Holds() }}).Leases
	if len(found) == 0 {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	lease := found[0]
	if err := a.deps.Leases.Release(r.Context(), addr.Unmap()); err != nil {
		return nil, err
	}
	back := api.GivenBack{Lease: lease, Message: consequence(lease, a.deps.Now())}
	back.Lease.State = api.LeaseReleased
	return back, nil
}

// postImport imports the leases in the body, a JSON list as GET leases answers it.
func (a *Admin) postImport(r *http.Request) (any, error) {
	q := r.URL.Query()
	over, rehearse := api.KeepLeases, api.DoImport
	if q.Get("replace") == "1" {
		over = api.ReplaceLeases
	}
	if q.Get("check") == "1" {
		rehearse = api.CheckImport
	}
	var leases []api.Lease
	if err := json.NewDecoder(r.Body).Decode(&leases); err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: "the body is not a list of leases: " + err.Error(), Hint: "want JSON as of GET leases"}
	}
	return a.deps.Leases.Import(r.Context(), leases, over, rehearse)
}

// consequence says what a release means for the machine that had the lease.
func consequence(l api.Lease, now time.Time) string {
	switch l.Status() {
	case api.LeaseOffered:
		return "the offer is withdrawn; the machine must request an address again"
	case api.LeaseDeclined, api.LeaseConflict:
		return "the address may be offered again; a machine that uses it without a lease continues to do so"
	}
	text := "the machine may use the address until it renews"
	if left := l.Expires.Sub(now); !l.Expires.IsZero() && left > 0 {
		text += ", in " + left.Round(time.Second).String() + " at the latest"
	}
	if l.Pool == "" && l.Host != "" {
		return text + "; the reservation for " + l.Host + " stays"
	}
	return text + "; reboot it, or renew its lease there, before another machine gets the address"
}
