package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	idleConn     = time.Minute // without a request until a connection is closed
	maxRedirects = 5
	downFor      = 10 * time.Second // an upstream that failed is tried last for this long
)

// upstreams sends requests to archives, and remembers by base URL which of them are down.
type upstreams struct {
	client *http.Client
	now    func() time.Time
	idle   time.Duration // without a byte until a body is aborted

	mu   sync.Mutex
	down map[string]time.Time // until
}

func newUpstreams(cfg Config, deps Deps) *upstreams {
	g := &reach{resolver: cfg.Resolver, own: deps.Own, admin: deps.Admin}
	return &upstreams{now: deps.Now, idle: cfg.Idle, down: map[string]time.Time{}, client: &http.Client{CheckRedirect: g.checkRedirect, Transport: g.transport()}}
}

func (u *upstreams) close() { u.client.CloseIdleConnections() }

// A query is a request that any upstream may answer.
type query struct {
	method string
	path   string
	header func(base string) http.Header // nil: none
}

// do asks the upstreams of m in turn until one answers with 2xx or 304; 404 or 410 counts if no other has the file. It
// returns the response with the base URL of its upstream. The caller closes the body.
func (u *upstreams) do(ctx context.Context, m *lab.Mirror, q query) (resp *http.Response, base string, err error) {
	var errs []error
	var missing *http.Response // the last such response
	for _, base := range u.order(m.URLs) {
		resp, err := u.one(ctx, base, q)
		switch {
		case errors.Is(err, errListing):
			err = statusError{http.StatusNotFound, err}
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

// order returns the URLs, with those that failed lately at the end.
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

// one asks one upstream. Any other status than 200, 206, 304, 404 and 410 is an error.
func (u *upstreams) one(ctx context.Context, base string, q query) (*http.Response, error) {
	target, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	// The path is encoded again: it cannot become a query, and ".." was refused before.
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
		if ctx.Err() == nil { // the client did not cancel
			u.mark(base, errors.Is(err, errListing))
		}
		return nil, fmt.Errorf("%s %s: %w", q.method, target.Redacted(), bare(err))
	}
	resp.Body = &watched{ReadCloser: resp.Body, cancel: cancel, idle: u.idle, timer: time.AfterFunc(u.idle, cancel)}
	s := resp.StatusCode
	u.mark(base, s < http.StatusInternalServerError && s != http.StatusTooManyRequests)
	if s == http.StatusOK || s == http.StatusPartialContent || s == http.StatusNotModified || absent(s) {
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, fmt.Errorf("%s %s: %s", q.method, target.Redacted(), resp.Status)
}

// bare removes the method and URL that net/http adds.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// A watched body is aborted when no byte arrives for idle.
type watched struct {
	io.ReadCloser
	cancel context.CancelFunc
	idle   time.Duration
	timer  *time.Timer
}

// errIdle means that an upstream stopped in the middle of a file.
var errIdle = errors.New("upstream stopped sending")

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

// A statusError is an error with the status to answer.
type statusError struct {
	status int
	reason error
}

// Error implements error.
func (e statusError) Error() string { return e.reason.Error() }

// Unwrap is for errors.Is.
func (e statusError) Unwrap() error { return e.reason }

// HTTPStatus is what to answer. 503 means "try again": for installers every status below 500 is final.
func (e statusError) HTTPStatus() int { return e.status }
