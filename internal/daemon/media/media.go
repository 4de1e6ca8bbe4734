package media

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
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/host/socket/outbound"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/virt"
)

// Limits of the download of a virtual medium.
const (
	dialLimit    = 10 * time.Second // for a connection, and for its TLS handshake
	stallLimit   = time.Minute      // without a byte
	timeLimit    = 30 * time.Minute
	maxRedirects = 5
	knownFor     = 5 * time.Minute // that a result is kept for a client that did not wait for it
)

// A Loader downloads virtual media, straight into the storage pools of their hypervisors.
type Loader struct {
	virt *virt.Server
	http *http.Client

	panics *panics.Server

	mu     sync.Mutex
	flying map[string]*insertion // by host
}

// An insertion is one that is in progress, or that ended after its client had gone.
type insertion struct {
	url  string
	done chan struct{}

	// Readable once done is closed.
	err   error
	ended time.Time
}

// outdated reports whether an insertion ended so long ago that a client who asks for the same wants another.
func (i *insertion) outdated() bool {
	select {
	case <-i.done:
		return time.Since(i.ended) > knownFor
	default:
		return false
	}
}

// New returns a loader that connects to no address for which allowed returns an error.
func New(v *virt.Server, p *panics.Server, allowed func(netip.AddrPort) error) *Loader {
	dialer := net.Dialer{Timeout: dialLimit}
	return &Loader{virt: v, panics: p, flying: map[string]*insertion{}, http: &http.Client{
		Transport: outbound.New(&http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: dialLimit, ResponseHeaderTimeout: stallLimit,
			DisableKeepAlives: true, DisableCompression: true,
		}, outbound.Checked(dialer, allowed)),
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			return nil
		},
	}}
}

// CheckAddress returns why media may not be downloaded from an address: who may insert them shall not reach what only this machine, or its
// neighbours, may. admin is where the admin API listens, and own reports whether an address is this machine's.
func CheckAddress(admin lab.Listen, own func(netip.Addr) bool, at netip.AddrPort) error {
	addr := at.Addr().Unmap().WithZone("")
	what := ""
	switch {
	case addr.IsLoopback(), addr.IsUnspecified():
		what = "loopback"
	case addr.IsLinkLocalUnicast():
		what = "a link-local address"
	case slices.ContainsFunc(admin, func(a netip.AddrPort) bool {
		return a.Port() == at.Port() && (a.Addr() == addr || own(addr))
	}):
		what = "the admin API of the appliance"
	default:
		return nil
	}
	return fmt.Errorf("media may not be downloaded from %s (%s)", what, at)
}

// Insert downloads an image into the CD drive of a host. It goes on when the client does not wait any longer, and a client that asks
// for the same again gets the result.
func (m *Loader) Insert(ctx context.Context, host string, i redfish.Image, most lab.Size) error {
	m.mu.Lock()
	now := m.flying[host]
	if now == nil || now.outdated() {
		now = &insertion{url: i.URL, done: make(chan struct{})}
		m.flying[host] = now
		go func() { // ends with the download, which has limits, and with virt.Server
			defer close(now.done)
			now.err = m.panics.Run(func() error { return m.load(context.WithoutCancel(ctx), host, i, most) })
			now.ended = time.Now()
		}()
	}
	m.mu.Unlock()
	if now.url != i.URL {
		select {
		case <-now.done:
			m.forget(host, now)
			return m.Insert(ctx, host, i, most)
		default:
			return fmt.Errorf("insert %s: another image is being downloaded for %s: %w", lab.Redacted(i.URL), host, virt.ErrBusy)
		}
	}
	select {
	case <-now.done:
		m.forget(host, now)
		return now.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Loader) forget(host string, i *insertion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flying[host] == i {
		delete(m.flying, host)
	}
}

// ForgetEnded forgets the result of an insertion that was not asked for: its image was ejected since.
func (m *Loader) ForgetEnded(host string) {
	m.mu.Lock()
	i := m.flying[host]
	m.mu.Unlock()
	if i == nil {
		return
	}
	select {
	case <-i.done:
		m.forget(host, i)
	default:
	}
}

// load downloads an image of at most most bytes.
func (m *Loader) load(ctx context.Context, host string, i redfish.Image, most lab.Size) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL, nil)
	if err != nil {
		return fmt.Errorf("download %s: %w", lab.Redacted(i.URL), err)
	}
	if i.User != "" {
		req.SetBasicAuth(i.User, i.Password)
	}
	resp, err := m.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL and its credentials
		}
		return fmt.Errorf("download %s: %w", lab.Redacted(i.URL), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("download %s: %s", lab.Redacted(i.URL), resp.Status)
	case resp.ContentLength <= 0:
		return fmt.Errorf("download %s: the server does not say how large it is (no Content-Length)", lab.Redacted(i.URL))
	case resp.ContentLength > int64(most):
		return fmt.Errorf("download %s: it has %d bytes, more than redfish.max_media (%d)", lab.Redacted(i.URL), resp.ContentLength, most)
	}
	stall := time.AfterFunc(stallLimit, cancel)
	defer stall.Stop()
	return m.virt.InsertMedia(ctx, host, lab.Redacted(i.URL), &stalling{resp.Body, stall}, uint64(resp.ContentLength))
}

// stalling puts its timer off with each read that returns something.
type stalling struct {
	io.Reader
	timer *time.Timer
}

// Read implements io.Reader.
func (s *stalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 {
		s.timer.Reset(stallLimit)
	}
	return n, err
}
