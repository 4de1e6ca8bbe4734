package e2e

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The tests' network namespaces have no way out. Debian's archive is reached by a Unix socket: outside, before the namespace is made,
// serveArchive listens on it and forwards to the archive; inside, an archive listens on TCP and forwards to the socket.
const (
	installVar = "BOOTLAB_E2E_INSTALL" // set: run the long tests that install whole systems
	socketVar  = "BOOTLAB_E2E_ARCHIVE_SOCKET"
	archiveVar = "BOOTLAB_E2E_ARCHIVE" // base URL of a Debian archive; default: apt's own
)

// serveArchive serves the archive on a socket until the process ends, and puts its path into the environment.
func serveArchive() error {
	base, err := archiveBase()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "archive")
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base); r.Out.Host = base.Host },
		Transport: &http.Transport{Proxy: archiveProxy()},
		ErrorLog:  log.New(io.Discard, "", 0), // the client gets the error
	}
	go func() { _ = http.Serve(l, proxy) }() // until the process ends, and the tests with it
	return os.Setenv(socketVar, socket)
}

// archiveBase returns the URL of dists/ and pool/: from the environment, or as apt uses it for this release.
func archiveBase() (*url.URL, error) {
	if said := os.Getenv(archiveVar); said != "" {
		return url.Parse(said)
	}
	out, _ := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Codename: bookworm", "Component: main", "Origin: Debian", "Created-By: Packages").Output() // nothing: the default
	for _, line := range strings.Fields(string(out)) {
		if u, err := url.Parse(line); err == nil && strings.HasPrefix(u.Scheme, "http") {
			return u, nil
		}
	}
	return url.Parse("http://deb.debian.org/debian")
}

// archiveProxy returns apt's proxy, or else the environment's.
func archiveProxy() func(*http.Request) (*url.URL, error) {
	out, _ := exec.Command("apt-config", "shell", "P", "Acquire::http::Proxy").Output() // nothing: none
	_, quoted, _ := strings.Cut(strings.TrimSpace(string(out)), "=")
	if u, err := url.Parse(strings.Trim(quoted, "'")); err == nil && u.Host != "" {
		return http.ProxyURL(u)
	}
	return http.ProxyFromEnvironment
}

// An archive is Debian's archive inside the namespace.
type archive struct {
	url      string
	listener net.Listener
	from     atomic.Int64 // bytes received from it

	mu   sync.Mutex
	open map[net.Conn]bool
}

// newArchive makes the archive reachable at addr, until it is cut or the test ends.
func newArchive(t *testing.T, addr string) *archive {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{url: "http://" + l.Addr().String(), listener: l, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				running.Go(func() { a.pass(c) })
			}
		}
	})
	t.Cleanup(func() { a.cut(); running.Wait() })
	return a
}

// cut closes the archive, in the middle of its answers.
func (a *archive) cut() {
	_ = a.listener.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.open {
		_ = c.Close()
	}
}

func (a *archive) pass(c net.Conn) {
	out, err := net.Dial("unix", os.Getenv(socketVar))
	if err != nil {
		_ = c.Close()
		return
	}
	a.mu.Lock()
	a.open[c], a.open[out] = true, true
	a.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, c); _ = out.Close() })
	n, _ := io.Copy(c, out)
	a.from.Add(n)
	_ = c.Close()
	both.Wait()
	a.mu.Lock()
	delete(a.open, c)
	delete(a.open, out)
	a.mu.Unlock()
}

// lacks returns the first component of Debian's installer that the archive does not have, or nothing.
func (a *archive) lacks(t *testing.T, udebs ...string) string {
	t.Helper()
	resp, err := http.Get(a.url + "/dists/bookworm/main/debian-installer/binary-amd64/Packages.xz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cmd := exec.CommandContext(t.Context(), "xz", "-dc")
	cmd.Stdin = resp.Body
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("the list of the installer's components, %s: %v", resp.Status, err)
	}
	for _, name := range udebs {
		path := regexp.MustCompile(`(?m)^Filename: (\S+/` + regexp.QuoteMeta(name) + `_\S+)$`).FindSubmatch(list)
		if path == nil {
			return name
		}
		resp, err := http.Head(a.url + "/" + string(path[1]))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return name
		}
	}
	return ""
}

// String returns how much was received from it.
func (a *archive) String() string {
	return fmt.Sprintf("%d MiB from the archive", a.from.Load()>>20)
}
