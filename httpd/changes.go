package httpd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// A change does what a request asks for. Only changing makes an endpoint of it: its parameters are parsed and known.
type change func(r *http.Request, p params) (any, error)

// params are the parameters of a request: each is known, and has one value.
type params url.Values

// Get returns a parameter; empty: the request does not have it.
func (p params) Get(name string) string { return url.Values(p).Get(name) }

// flags are the parameters that are 0 or 1.
var flags = []string{"always", "backup", "check", "disks", "do", "done", "follow", "force", "now", "raw", "replace", "secrets"}

// flag reports whether a flag is 1.
func (p params) flag(name string) bool { return p.Get(name) == "1" }

// changes are all changes by their path, with the parameters that a request may have: for the API and for the dashboard's forms.
func (a *Admin) changes() map[string]endpoint {
	return map[string]endpoint{
		"install/{host}": a.changing(a.postInstall, "done", "now"),
		"hypervisors/{hypervisor}/networks/{network}": a.changing(a.postNetwork, "action"),
		"vms/{host}":                  a.changing(a.postVM, "action", "timeout", "force", "disks"),
		"vms/{host}/snapshots/{name}": a.changing(a.postSnapshot, "action"),
		"vms/{host}/console/input":    a.withBody(a.postConsoleInput),
		"vms/{host}/console/take": a.changing(func(r *http.Request, _ params) (any, error) {
			return struct{}{}, a.deps.Backend.TakeConsole(r.Context(), r.PathValue("host"))
		}),
		"power/{host}":                  a.changing(a.postPower, "action"),
		"power/{host}/boot":             a.changing(a.postBoot, "device", "always"),
		"backends/{balancer}/{backend}": a.changing(a.postBackend, "action", "weight", "backup"),
		"clusters/{cluster}/up": a.changing(func(r *http.Request, _ params) (any, error) {
			return a.deps.Backend.Up(r.Context(), r.PathValue("cluster"))
		}),
		"clusters/{cluster}/down": a.changing(func(r *http.Request, _ params) (any, error) {
			return a.deps.Backend.Down(r.Context(), r.PathValue("cluster"))
		}),
		"leases/{addr}/release": a.changing(a.postRelease),
		pathImport:              a.withBody(a.postImport, "replace", "check"),
		"reload":                a.changing(a.postReload, "force", "check"),
		"sessions/revoke":       a.changing(a.postRevoke),
		"state/accept-new": a.changing(func(r *http.Request, p params) (any, error) {
			return a.deps.Backend.AcceptState(r.Context(), p.Get("database"))
		}, "database"),
		"dns/flush": a.changing(func(r *http.Request, p params) (any, error) {
			return a.deps.Backend.FlushDNS(r.Context(), p.Get("name"))
		}, "name"),
		"dns/updates/delete": a.changing(func(r *http.Request, p params) (any, error) {
			return a.deps.Backend.DeleteDNSUpdate(r.Context(), p.Get("name"), p.Get("type"))
		}, "name", "type"),
	}
}

// changing returns the endpoint of a change, with parameters in the URL or in a form.
func (a *Admin) changing(c change, known ...string) endpoint { return a.reading(formOf, c, known) }

// withBody returns the endpoint of a change that reads the body itself; its parameters are in the URL.
func (a *Admin) withBody(c change, known ...string) endpoint { return a.reading(queryOf, c, known) }

// reading returns the endpoint of a change, which pages show at once. It refuses parameters that are not known: done=1 that is misspelled
// would arm a machine that is installed.
func (a *Admin) reading(parse func(*http.Request) (params, error), c change, known []string) endpoint {
	return func(r *http.Request) (any, error) {
		p, err := parse(r)
		if err == nil {
			err = cmp.Or(p.check(known, nil), cleanHost(r))
		}
		if err != nil {
			return nil, err
		}
		defer a.rendered.forget()
		return c(r, p)
	}
}

// queryOf returns the parameters in the URL.
func queryOf(r *http.Request) (params, error) {
	p, err := url.ParseQuery(r.URL.RawQuery)
	return params(p), badForm(err)
}

// formOf returns the parameters in the URL and in a form. A body of another type, which ParseForm ignores, is an error.
func formOf(r *http.Request) (params, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
		return nil, badForm(fmt.Errorf("the body is of type %.60q", kind))
	}
	err := r.ParseForm()
	return params(r.Form), badForm(err)
}

// badForm is the error of parameters that cannot be parsed; nil if err is.
func badForm(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Status: http.StatusBadRequest, Message: "the parameters cannot be read: " + err.Error(),
		Hint: "send them in the URL, or as application/x-www-form-urlencoded"}
}

// check refuses parameters that are not known, those with several values that are not among lists, and flags that are neither 0 nor 1.
func (p params) check(known, lists []string) error {
	for name, values := range p {
		if !slices.Contains(known, name) {
			return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("parameter %.60q is not known", name), Hint: "want " + cmp.Or(strings.Join(known, ", "), "none")}
		}
		if len(values) > 1 && !slices.Contains(lists, name) {
			return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("parameter %s has %d values", name, len(values)), Hint: "want one"}
		}
		if slices.Contains(flags, name) && p.Get(name) != "0" && p.Get(name) != "1" {
			return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%s=%.60q is not known", name, p.Get(name)), Hint: "want " + name + "=1, or nothing"}
		}
	}
	return nil
}

// choose returns the parameter name where it is one of the choices.
func choose[T ~string](p params, name string, choices ...T) (T, error) {
	v := T(p.Get(name))
	if slices.Contains(choices, v) {
		return v, nil
	}
	return v, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%s=%.60q is not known", name, string(v)), Hint: fmt.Sprintf("want one of %v", choices)}
}

func (a *Admin) postInstall(r *http.Request, p params) (any, error) {
	host, cycle := r.PathValue("host"), api.CycleLater
	switch done, now := p.flag("done"), p.flag("now"); {
	case done && now:
		return nil, &api.Error{Status: http.StatusBadRequest, Message: "done=1 and now=1 exclude each other"}
	case done:
		return a.deps.Backend.MarkInstalled(r.Context(), host)
	case now:
		cycle = api.CycleNow
	}
	return a.deps.Backend.Install(r.Context(), host, cycle)
}

func (a *Admin) postSnapshot(r *http.Request, p params) (any, error) {
	action, err := choose(p, "action", api.SnapshotCreate, api.SnapshotRevert, api.SnapshotDelete)
	if err != nil {
		return nil, err
	}
	return listOf(a.deps.Backend.Snapshot(r.Context(), r.PathValue("host"), action, r.PathValue("name")))
}

func (a *Admin) postNetwork(r *http.Request, p params) (any, error) {
	action, err := choose(p, "action", api.NetworkApply, api.NetworkDelete)
	if err != nil {
		return nil, err
	}
	return a.deps.Backend.Network(r.Context(), r.PathValue("hypervisor"), r.PathValue("network"), action)
}

func (a *Admin) postVM(r *http.Request, p params) (any, error) {
	action, err := choose(p, "action", api.VMCreate, api.VMStart, api.VMStop, api.VMDelete, api.VMApply, api.VMForget)
	if err != nil {
		return nil, err
	}
	opts := api.VMOptions{Force: p.flag("force"), Disks: p.flag("disks")}
	if text := p.Get("timeout"); text != "" {
		if opts.Timeout, err = time.ParseDuration(text); err != nil || opts.Timeout <= 0 || opts.Timeout > api.MaxVMTimeout {
			return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("timeout=%.60q is no timeout", text), Hint: "want one such as 90s or 10m, at most 24h"}
		}
	}
	return a.deps.Backend.VM(r.Context(), r.PathValue("host"), action, opts)
}

func (a *Admin) postPower(r *http.Request, p params) (any, error) {
	action, err := choose(p, "action", api.PowerStatus, api.PowerOn, api.PowerOff, api.PowerCycle)
	if err != nil {
		return nil, err
	}
	return a.deps.Backend.Power(r.Context(), r.PathValue("host"), action)
}

func (a *Admin) postBoot(r *http.Request, p params) (any, error) {
	device, err := choose(p, "device", api.BootDefault, api.BootNetwork, api.BootDisk, api.BootCD)
	if err != nil {
		return nil, err
	}
	return a.deps.Backend.SetBoot(r.Context(), r.PathValue("host"), device, p.flag("always"))
}

func (a *Admin) postBackend(r *http.Request, p params) (any, error) {
	action, err := choose(p, "action", api.BackendDrain, api.BackendReady, api.BackendAdd, api.BackendRemove, api.BackendWeight)
	if err != nil {
		return nil, err
	}
	change := api.BackendChange{Action: action, Backup: p.flag("backup")}
	if text := p.Get("weight"); text != "" {
		if change.Weight, err = strconv.Atoi(text); err != nil || change.Weight < 1 {
			return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("weight=%.60q is not a weight", text), Hint: fmt.Sprintf("want 1 to %d, or none for the default", lab.MaxWeight)}
		}
	}
	return listOf(a.deps.Backend.Backend(r.Context(), r.PathValue("balancer"), r.PathValue("backend"), change))
}

func (a *Admin) postReload(r *http.Request, p params) (any, error) {
	var answer api.Reload
	var err error
	switch {
	case p.flag("check"):
		answer, err = a.deps.Backend.CheckReload(r.Context())
	case p.flag("force"):
		answer, err = a.deps.Backend.Reload(r.Context(), api.Forced)
	default:
		answer, err = a.deps.Backend.Reload(r.Context(), api.Careful)
	}
	if err != nil {
		return nil, refusedReload(err)
	}
	return answer, nil
}

// refusedReload makes an answer of a refused lab: the caller's fault, not the daemon's, unless the error says otherwise.
func refusedReload(err error) error {
	if statusOf(err) != http.StatusInternalServerError {
		return err
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Message: "the lab file was refused; the running lab stays in force", Reason: err.Error()}
}

// postRevoke ends all sessions of the dashboard. The token stays valid.
func (a *Admin) postRevoke(r *http.Request, _ params) (any, error) {
	n := a.open.End(everySession)
	a.deps.Log.Info("all sessions revoked", keyAddr, peer(r), "sessions", n)
	return api.Revoked{Sessions: n}, nil
}

// postRotate replaces the token, and ends all that the old one, and sessions that began with it, have opened. It is for the Unix socket only:
// a leaked token must not lock the admin out.
func (a *Admin) postRotate(why trust) change {
	return func(r *http.Request, _ params) (any, error) {
		if why != bySocket {
			return nil, tokenBySocket("run bootlab token rotate on the daemon's machine")
		}
		a.rotation.Lock()
		defer a.rotation.Unlock()
		token, err := a.deps.NewToken(r.Context())
		if err != nil {
			return nil, fmt.Errorf("the old token stays in use: %w", err)
		}
		a.keys.Swap(newKeys(token)).end()
		a.deps.Log.Info("token rotated, all sessions revoked", "sessions", a.open.End(everySession))
		return api.Token{Token: token}, nil
	}
}

// postRelease ends a lease. DHCP cannot notify the machine (RFC 3203 could, but no client implements it), so the response says
// what that means for it.
func (a *Admin) postRelease(r *http.Request, _ params) (any, error) {
	addr, err := netip.ParseAddr(r.PathValue("addr"))
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not an address", r.PathValue("addr")), Hint: "want one such as 192.168.16.130"}
	}
	found := a.deps.Backend.Leases(r.Context(), api.LeaseQuery{Limit: 1, Keep: func(l *api.Lease) bool { return l.IP == addr.Unmap() && l.Holds() }}).Leases
	if len(found) == 0 {
		return nil, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	lease := found[0]
	if err := a.deps.Backend.Release(r.Context(), addr.Unmap()); err != nil {
		return nil, err
	}
	back := api.GivenBack{Lease: lease, Message: consequence(lease, a.deps.Now())}
	back.Lease.State = api.LeaseReleased
	return back, nil
}

// postImport imports the leases in the body, a JSON list as GET leases answers it.
func (a *Admin) postImport(r *http.Request, p params) (any, error) {
	over, rehearse := api.KeepLeases, api.DoImport
	if p.flag("replace") {
		over = api.ReplaceLeases
	}
	if p.flag("check") {
		rehearse = api.CheckImport
	}
	leases, err := readLeases(r.Body)
	if err != nil {
		return nil, &api.Error{Status: http.StatusBadRequest, Message: "the body is not a list of leases: " + err.Error(), Hint: "want JSON as of GET leases"}
	}
	return a.deps.Backend.Import(r.Context(), leases, over, rehearse)
}

// readLeases reads a JSON list one lease at a time: as a whole, json would keep all of its text.
func readLeases(body io.Reader) (leases []api.Lease, err error) {
	d := json.NewDecoder(body)
	switch start, err := d.Token(); {
	case err != nil:
		return nil, err
	case start == nil: // null, as an empty list is written by some
		return nil, nil
	case start != json.Delim('['):
		return nil, fmt.Errorf("it begins with %v", start)
	}
	for d.More() {
		var l api.Lease
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		leases = append(leases, l)
	}
	_, err = d.Token()
	return leases, err
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
	if l.Reserved {
		return text + "; the reservation for " + l.Host + " stays"
	}
	return text + "; reboot it, or renew its lease there, before another machine gets the address"
}
