package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Prefix is where the API lives on the admin API.
const Prefix = "/api/v1/"

const (
	dialTimeout = 5 * time.Second
	// answerTimeout is how long the head of an answer to GET may take: those that ask controllers or hypervisors give up after 15 seconds.
	// What changes something may take as long as it needs.
	answerTimeout = 30 * time.Second
	maxLine       = 1 << 20 // of a stream of events
)

// A Client asks one daemon. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	reads *http.Client // for GET
	base  string       // URL up to Prefix
	where string       // as people name it
	token string
}

// NewClient returns a client of the daemon at target: the path of its Unix socket (absolute, beginning with a dot, or ending
// in .sock), or "http://host:port" (the scheme may be left out) with the token that "bootlab token" shows there. Nothing is
// dialled yet.
func NewClient(target, token string) (*Client, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	c := &Client{where: target, token: token}
	transport := &http.Transport{DialContext: dialer.DialContext, IdleConnTimeout: time.Minute}
	switch socket := strings.TrimPrefix(target, "unix://"); {
	case socket != target, isSocketPath(socket):
		c.base, c.where = "http://bootlab", socket
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	default:
		u, err := parseTarget(target)
		if err != nil {
			return nil, err
		}
		c.base = u
	}
	c.http = &http.Client{Transport: transport}
	c.setAnswerTimeout(answerTimeout)
	return c, nil
}

func (c *Client) setAnswerTimeout(d time.Duration) {
	transport := c.http.Transport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = d
	c.reads = &http.Client{Transport: transport}
}

func isSocketPath(target string) bool {
	return strings.HasPrefix(target, "/") || strings.HasPrefix(target, ".") ||
		strings.HasSuffix(target, ".sock") && !strings.Contains(target, "://")
}

func parseTarget(target string) (string, error) {
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("%q is not the address of a daemon: want /path/of/a.sock, http://host:port or https://host", target)
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/"), nil
}

// Status returns the state of the daemon.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.get(ctx, "status", &s)
}

// Hosts returns the lab's machines, by name.
func (c *Client) Hosts(ctx context.Context) (hosts []Host, err error) {
	return hosts, c.get(ctx, "hosts", &hosts)
}

// Leases returns the leases that hold an address now, by address.
func (c *Client) Leases(ctx context.Context) ([]Lease, error) {
	return c.FindLeases(ctx, LeaseFilter{})
}

// FindLeases returns the leases that pass the filter, by address.
func (c *Client) FindLeases(ctx context.Context, f LeaseFilter) (leases []Lease, err error) {
	return leases, c.call(ctx, http.MethodGet, "leases", f.Values(), &leases)
}

// ReleaseLease releases the lease of an address, as if its client had sent DHCPRELEASE.
func (c *Client) ReleaseLease(ctx context.Context, addr netip.Addr) (g GivenBack, err error) {
	return g, c.post(ctx, "leases/"+addr.String()+"/release", nil, &g)
}

// ImportLeases takes over leases of another server, as bootlab leases export writes them, or answers what an import would do.
func (c *Client) ImportLeases(ctx context.Context, leases []Lease, o Overwrite, r Rehearse) (done LeaseImport, err error) {
	q := url.Values{}
	if o == ReplaceLeases {
		q.Set("replace", "1")
	}
	if r == CheckImport {
		q.Set("check", "1")
	}
	body, err := json.Marshal(leases)
	if err != nil {
		return done, fmt.Errorf("encode leases: %w", err)
	}
	return done, c.callWith(ctx, http.MethodPost, "leases/import", q, body, &done)
}

// Pools returns size and free addresses of the pools, by network and name.
func (c *Client) Pools(ctx context.Context) (pools []Pool, err error) {
	return pools, c.get(ctx, "pools", &pools)
}

// Boots returns the recorded boots of a host (its name, or the MAC of an unknown machine), the oldest first.
func (c *Client) Boots(ctx context.Context, host string) (boots []Boot, err error) {
	return boots, c.get(ctx, "timeline/"+url.PathEscape(host), &boots)
}

// Why returns where the last boot of a host stopped, and why.
func (c *Client) Why(ctx context.Context, host string) (d Diagnosis, err error) {
	return d, c.get(ctx, "hosts/"+url.PathEscape(host)+"/why", &d)
}

// Follow calls fn for every event of host from now on, until ctx ends, the daemon stops (nil) or fn returns an error,
// which is returned.
func (c *Client) Follow(ctx context.Context, host string, fn func(event.Event) error) error {
	return followLines(ctx, c, "timeline/"+url.PathEscape(host), url.Values{"follow": {"1"}}, fn)
}

// followLines calls fn for each line of an answer that goes on, until ctx ends, the daemon stops (nil) or fn returns an error, which is
// returned.
func followLines[T any](ctx context.Context, c *Client, path string, q url.Values, fn func(T) error) error {
	resp, err := c.open(ctx, path, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue // keeps the connection alive
		}
		var line T
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("read the lines of %s: %w", path, err)
		}
		if err := fn(line); err != nil {
			return err
		}
	}
	return cmp.Or(interrupted(ctx.Err()), lines.Err())
}

// Install arms the installation of host at its next boot. With cycle the machine is power-cycled now.
func (c *Client) Install(ctx context.Context, host string, cycle Cycle) (a Arming, err error) {
	q := url.Values{}
	if cycle == CycleNow {
		q.Set("now", "1")
	}
	return a, c.post(ctx, "install/"+url.PathEscape(host), q, &a)
}

// MarkInstalled makes host count as installed, on the admin's word.
func (c *Client) MarkInstalled(ctx context.Context, host string) (a Arming, err error) {
	return a, c.post(ctx, "install/"+url.PathEscape(host), url.Values{"done": {"1"}}, &a)
}

// Unknown returns the machines that sent requests and are not in the lab, the one seen last first.
func (c *Client) Unknown(ctx context.Context) (ms []UnknownMachine, err error) {
	return ms, c.get(ctx, "unknown", &ms)
}

// Adoption returns how a machine that is not in the lab could become a host of it.
func (c *Client) Adoption(ctx context.Context, mac lab.MAC) (a Adoption, err error) {
	return a, c.get(ctx, "unknown/"+mac.Hyphens(), &a)
}

// State returns the condition of the state folder.
func (c *Client) State(ctx context.Context) (s State, err error) {
	return s, c.get(ctx, "state", &s)
}

// AcceptState accepts the state as it is after a loss: hosts whose install state is unknown are armed. It returns the state
// afterwards. have is the name of the database that was looked at; the state of another one is not accepted.
func (c *Client) AcceptState(ctx context.Context, have string) (s State, err error) {
	return s, c.post(ctx, "state/accept-new", url.Values{"database": {have}}, &s)
}

// VMs returns the virtual machines of the lab, by host.
func (c *Client) VMs(ctx context.Context) (vms []VM, err error) {
	return vms, c.get(ctx, "vms", &vms)
}

// Power does action to the power of a host, and returns how it is afterwards.
func (c *Client) Power(ctx context.Context, host string, action PowerAction) (p Power, err error) {
	return p, c.post(ctx, "power/"+url.PathEscape(host), url.Values{"action": {string(action)}}, &p)
}

// SetBoot sets what a host boots from next; always: at each boot. Its power stays as it is, and no installation is armed.
func (c *Client) SetBoot(ctx context.Context, host string, device BootDevice, always bool) (n NextBoot, err error) {
	q := url.Values{"device": {string(device)}}
	if always {
		q.Set("always", "1")
	}
	return n, c.post(ctx, "power/"+url.PathEscape(host)+"/boot", q, &n)
}

// VMPlan compares the virtual machines of hosts with the lab file; of no hosts: all, and those that are no longer in the lab file.
func (c *Client) VMPlan(ctx context.Context, hosts ...string) (plan []VMPlan, err error) {
	return plan, c.call(ctx, http.MethodGet, "vms/plan", url.Values{"host": hosts}, &plan)
}

// VM does action to the virtual machine of host and returns its state afterwards.
func (c *Client) VM(ctx context.Context, host string, action VMAction, opts VMOptions) (vm VM, err error) {
	q := url.Values{"action": {string(action)}}
	if opts.Timeout > 0 {
		q.Set("timeout", opts.Timeout.String())
	}
	if opts.Force {
		q.Set("force", "1")
	}
	if opts.Disks {
		q.Set("disks", "1")
	}
	return vm, c.post(ctx, "vms/"+url.PathEscape(host), q, &vm)
}

// Balancers returns the balancers, by name, and the health of their backends.
func (c *Client) Balancers(ctx context.Context) (bs []Balancer, err error) {
	return bs, c.get(ctx, "balancers", &bs)
}

// Backend changes the backends of a balancer that backend names, and returns each as it is afterwards; of a removed one name and address.
// backend is a name, an address, or either with a port: a host may have several. To add one needs a port.
func (c *Client) Backend(ctx context.Context, balancer, backend string, change BackendChange) (bs []Backend, err error) {
	path := "backends/" + url.PathEscape(balancer) + "/" + url.PathEscape(backend)
	form := url.Values{"action": {string(change.Action)}}
	if change.Weight > 0 {
		form.Set("weight", strconv.Itoa(change.Weight))
	}
	if change.Backup {
		form.Set("backup", "1")
	}
	return bs, c.post(ctx, path, form, &bs)
}

// Clusters returns the clusters of the lab, by name.
func (c *Client) Clusters(ctx context.Context) (cs []Cluster, err error) {
	return cs, c.get(ctx, "clusters", &cs)
}

// ClusterUp makes the daemon bring a cluster up, until it is ready. It returns at once.
func (c *Client) ClusterUp(ctx context.Context, name string) (cl Cluster, err error) {
	return cl, c.post(ctx, "clusters/"+url.PathEscape(name)+"/up", nil, &cl)
}

// ClusterDown ends that, and returns once the virtual machines of the cluster are shut down.
func (c *Client) ClusterDown(ctx context.Context, name string) (cl Cluster, err error) {
	return cl, c.post(ctx, "clusters/"+url.PathEscape(name)+"/down", nil, &cl)
}

// Reload makes the daemon read its lab again. A lab that is refused is an *Error with the reason. Forced applies even
// a lab that drops more than half of the contents.
func (c *Client) Reload(ctx context.Context, force Force) (r Reload, err error) {
	q := url.Values{}
	if force == Forced {
		q.Set("force", "1")
	}
	return r, c.post(ctx, "reload", q, &r)
}

// CheckReload returns the error that a careful Reload would be refused with now; nil: it would be applied.
func (c *Client) CheckReload(ctx context.Context) error {
	return c.post(ctx, "reload", url.Values{"check": {"1"}}, &Reload{})
}

// Sessions returns the logins of the dashboard, the one used last first.
func (c *Client) Sessions(ctx context.Context) (sessions []Session, err error) {
	return sessions, c.get(ctx, "sessions", &sessions)
}

// RevokeSessions ends all of them.
func (c *Client) RevokeSessions(ctx context.Context) (r Revoked, err error) {
	return r, c.post(ctx, "sessions/revoke", nil, &r)
}

// Plan returns everything derived from the running lab as text, for one host or, with an empty name, for all.
func (c *Client) Plan(ctx context.Context, host string, s Secrets) (string, error) {
	q := url.Values{}
	if s == Shown {
		q.Set("secrets", "1")
	}
	if host != "" {
		q.Set("host", host)
	}
	resp, err := c.open(ctx, "lab", q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// LabKeys returns the keys of the running lab whose values no plan shows, each with a fingerprint of its value; of a host, those that
// concern it.
func (c *Client) LabKeys(ctx context.Context, host string) (keys map[string]string, err error) {
	q := url.Values{}
	if host != "" {
		q.Set("host", host)
	}
	return keys, c.call(ctx, http.MethodGet, "lab/keys", q, &keys)
}

// Backup returns a backup of the daemon's state as a stream, which the caller closes. It is whole only if package backup reads
// it without an error.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.open(ctx, "backup", nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Token returns the token that the admin API asks for over TCP. Only the Unix socket answers it.
func (c *Client) Token(ctx context.Context) (string, error) {
	var t Token
	err := c.get(ctx, "token", &t)
	return t.Token, err
}

// RotateToken replaces the token by a new one, and ends all sessions. Only the Unix socket answers it.
func (c *Client) RotateToken(ctx context.Context) (t Token, err error) {
	return t, c.post(ctx, "token/rotate", nil, &t)
}

// Cycle says whether an installation waits for the machine's next boot.
type Cycle int

// The ways to start an installation.
const (
	CycleLater Cycle = iota // at the next boot, whenever it comes
	CycleNow                // power-cycle the machine
)

// Secrets says whether config documents, which hold keys and passwords, are shown.
type Secrets int

// The values of Secrets.
const (
	Hidden Secrets = iota
	Shown
)

// Force says whether a reload may drop more than half of the contents.
type Force int

// The ways to reload.
const (
	Careful Force = iota
	Forced
)

func (c *Client) get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, into)
}

func (c *Client) post(ctx context.Context, path string, q url.Values, into any) error {
	return c.call(ctx, http.MethodPost, path, q, into)
}

func (c *Client) call(ctx context.Context, method, path string, q url.Values, into any) error {
	return c.callWith(ctx, method, path, q, nil, into)
}

func (c *Client) callWith(ctx context.Context, method, path string, q url.Values, body []byte, into any) error {
	resp, err := c.send(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("read the daemon's answer to %s: %w", path, err)
	}
	return nil
}

// open asks for something, and returns a 200 answer, whose body the caller closes, or an error.
func (c *Client) open(ctx context.Context, path string, q url.Values) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, q, nil)
}

// send sends a request with a body of JSON, nil for none, and returns as open does.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, content []byte) (*http.Response, error) {
	u := c.base + Prefix + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	client := c.http
	if method == http.MethodGet {
		client = c.reads
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	resp.Body = body{resp.Body}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.refusal(resp)
	}
	return resp, nil
}

// A closedSocket is the error that this user may not open the socket of the daemon.
type closedSocket struct{ err error }

// Error returns the error and the fix.
func (e *closedSocket) Error() string { return e.err.Error() + ": " + e.Fix() }

// Unwrap returns the error of the connection, without the fix.
func (e *closedSocket) Unwrap() error { return e.err }

// Fix returns what to do.
func (e *closedSocket) Fix() string { return "run as root or as a member of the socket's group" }

// explain says in the user's words why the daemon was not reached.
func (c *Client) explain(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w at %s: is it running? (bootlab serve)", ErrNoDaemon, c.where)
	case errors.Is(err, fs.ErrPermission):
		return &closedSocket{fmt.Errorf("open %s: %w", c.where, fs.ErrPermission)}
	case silent(err):
		return fmt.Errorf("%w at %s: it accepts connections and sends nothing: is it stopped, or its disk?", ErrNoDaemon, c.where)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return interrupted(err)
	default:
		return fmt.Errorf("%w at %s: %w", ErrNoDaemon, c.where, err)
	}
}

// silent reports whether the head of an answer did not come in time. net/http says that it is context.DeadlineExceeded, too.
func silent(err error) bool {
	var ne net.Error
	return err != context.DeadlineExceeded && errors.As(err, &ne) && ne.Timeout() && !errors.As(err, new(*net.OpError))
}

func (c *Client) refusal(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	e := &Error{Status: resp.StatusCode}
	if json.Unmarshal(b, e) == nil && e.Message != "" {
		return e
	}
	e.Message = fmt.Sprintf("%s answered %s, which is not an answer of bootlab", c.where, resp.Status)
	return e
}
