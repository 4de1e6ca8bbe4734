package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	dialWait     = 5 * time.Second
	headerWait   = 15 * time.Second
	maxRedirects = 5
	downFor      = 10 * time.Second // an upstream that failed is asked last for so long
)

// upstreams fetches from archives. Whose turn it is, and who is down, is remembered by base URL.
type upstreams struct {
	client *http.Client
	now    func() time.Time
	idle   time.Duration // without a byte until a body is given up

	mu   sync.Mutex
	down map[string]time.Time // until
}

func newUpstreams(now func() time.Time, idle time.Duration) *upstreams {
	return &upstreams{now: now, idle: idle, down: map[string]time.Time{}, client: &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialWait}).DialContext,
			TLSHandshakeTimeout:   dialWait,
			ResponseHeaderTimeout: headerWait,
			IdleConnTimeout:       time.Minute,
			MaxIdleConnsPerHost:   16,
			ForceAttemptHTTP2:     true,
			DisableCompression:    true, // bytes are kept as upstream has them
		},
	}}
}

func (u *upstreams) close() { u.client.CloseIdleConnections() }

// checkRedirect keeps an upstream from sending us to anything but http and https, to ourselves, to what only this machine
// may reach, or to a listing.
func checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return fmt.Errorf("redirected to %s, which is neither http nor https", r.URL.Redacted())
	case strings.HasSuffix(r.URL.Path, "/"):
		return errListing
	case local(r.URL) && !local(via[0].URL):
		return fmt.Errorf("redirected to %s, which is this machine", r.URL.Redacted())
	}
	return nil
}

// errListing is that a path is a folder upstream.
var errListing = errors.New("redirected to a listing")

// local reports whether a URL is of this machine, or of a cloud's metadata service.
func local(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost" || strings.HasSuffix(host, ".localhost")
	}
	a = a.Unmap()
	return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast()
}

// An ask is one question to whichever upstream answers.
type ask struct {
	method string
	path   string
	header func(base string) http.Header // nil: none
}

// do asks the upstreams of m in turn until one has an answer: 2xx, 304, 404 or 410 (where none has the file). It returns
// whose answer it is. The caller closes the body.
func (u *upstreams) do(ctx context.Context, m *lab.Mirror, q ask) (resp *http.Response, base string, err error) {
	var errs []error
	var missing *http.Response // the last that said so
	for _, base := range u.order(m.URLs) {
		resp, err := u.one(ctx, base, q)
		switch {
		case errors.Is(err, errListing):
			err = refusal{http.StatusNotFound, err}
			return nil, base, err
		case err != nil:
			errs = append(errs, err)
		case !absent(resp.StatusCode):
			return resp, base, nil
		default:
			_ = resp.Body.Close()
			missing = resp
		}
	}
	if missing != nil {
		return missing, "", nil
	}
	return nil, "", errors.Join(errs...)
}

func absent(status int) bool { return status == http.StatusNotFound || status == http.StatusGone }

// order returns the URLs, those last that failed lately.
func (u *upstreams) order(urls []string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	sorted := slices.Clone(urls)
	slices.SortStableFunc(sorted, func(a, b string) int {
		return boolInt(now.Before(u.down[a])) - boolInt(now.Before(u.down[b]))
	})
	return sorted
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// allDown reports whether every upstream failed lately.
func (u *upstreams) allDown(urls []string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	return !slices.ContainsFunc(urls, func(base string) bool { return !now.Before(u.down[base]) })
}

func (u *upstreams) mark(base string, up bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if up {
		delete(u.down, base)
		return
	}
	u.down[base] = u.now().Add(downFor)
}

// one asks one upstream. An answer that is no answer (5xx, 403, nonsense) is an error.
func (u *upstreams) one(ctx context.Context, base string, q ask) (*http.Response, error) {
	target, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	// The path is encoded anew: it cannot become a query, and ".." was refused before.
	target.Path, target.RawPath = strings.TrimRight(target.Path, "/")+"/"+q.path, ""
	mine, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(mine, q.method, target.String(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	if q.header != nil {
		r.Header = q.header(base)
	}
	r.Header.Set("User-Agent", "bootlab")
	resp, err := u.client.Do(r)
	if err != nil {
		cancel()
		if ctx.Err() == nil { // nobody lost interest
			u.mark(base, errors.Is(err, errListing))
		}
		return nil, fmt.Errorf("%s %s: %w", q.method, target.Redacted(), bare(err))
	}
	resp.Body = &watched{ReadCloser: resp.Body, cancel: cancel, idle: u.idle, timer: time.AfterFunc(u.idle, cancel)}
	switch s := resp.StatusCode; {
	case s == http.StatusOK, s == http.StatusPartialContent, s == http.StatusNotModified, absent(s):
		u.mark(base, true)
		return resp, nil
	default:
		_ = resp.Body.Close()
		u.mark(base, s < http.StatusInternalServerError && s != http.StatusTooManyRequests)
		return nil, fmt.Errorf("%s %s: %s", q.method, target.Redacted(), resp.Status)
	}
}

// bare takes off net/http's repetition of method and URL.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// A watched body breaks off when no byte comes for a while.
type watched struct {
	io.ReadCloser
	cancel context.CancelFunc
	idle   time.Duration
	timer  *time.Timer
}

// errIdle is that an upstream stopped in the middle of a file.
var errIdle = errors.New("upstream sends nothing any more")

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if !w.timer.Reset(w.idle) && errors.Is(err, context.Canceled) {
		err = errIdle
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	err := w.ReadCloser.Close()
	w.cancel()
	return err
}

// A refusal is an error with the status that a machine gets for it.
type refusal struct {
	status int
	reason error
}

// Error implements error.
func (r refusal) Error() string { return r.reason.Error() }

// Unwrap is for errors.Is.
func (r refusal) Unwrap() error { return r.reason }

// HTTPStatus is what to answer. 503 is "ask again": everything below is final for installers.
func (r refusal) HTTPStatus() int { return r.status }
