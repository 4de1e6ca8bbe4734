package httpd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

const (
	testMAC   = "52:54:00:00:02:01"
	testToken = "s3cr3t-t0ken-0f-0ne-b00t"
	patience  = 30 * time.Second // for what happens at once unless the machine is busy
)

// A refusal is a boot service's error with a status.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string   { return r.text }
func (r refusal) HTTPStatus() int { return r.status }

// A bootService is a boot.BootService at the edge: one machine, one token.
type bootService struct {
	document  []byte
	recording func(context.Context) // what takes time while a read or a "done" is written down; nil: nothing

	mu    sync.Mutex
	calls []string
}

func (d *bootService) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
}

func (d *bootService) noted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// settled waits for n calls after the first ones and returns them.
func (d *bootService) settled(t *testing.T, before, n int) []string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for len(d.noted()) < before+n && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if calls := d.noted()[before:]; len(calls) > 0 {
		return calls
	}
	return nil
}

func (d *bootService) Script(_ context.Context, mac lab.MAC, from netip.Addr, name string) (*boot.Script, error) {
	d.note("script %s %s %s", mac, from, name)
	if mac.String() != testMAC {
		return nil, refusal{404, "no machine " + mac.String()}
	}
	return boot.NewScript([]byte("#!ipxe\n# "+name+"\n"), func(ctx context.Context) error {
		if d.recording != nil {
			d.recording(ctx)
		}
		d.note("received %s %s", mac, name)
		return nil
	}), nil
}

func (d *bootService) Config(_ context.Context, mac lab.MAC, token, name string, from netip.Addr) (*boot.Document, error) {
	d.note("config %s %s", mac, name)
	switch {
	case name == "panic":
		panic("the boot service fell over " + token)
	case name == "early.ign":
		return nil, refusal{503, "not yet, " + token}
	case name == "broken.ign":
		return nil, fmt.Errorf("render with %s: out of ink", token)
	case mac.String() != testMAC || token != testToken:
		return nil, refusal{403, "wrong token " + token}
	}
	return d.serve("application/vnd.coreos.ignition+json", d.document, mac, name), nil
}

func (d *bootService) Answer(_ context.Context, macs []lab.MAC, from netip.Addr) (*boot.Document, error) {
	d.note("answer %v %s", macs, from)
	if len(macs) == 0 || macs[len(macs)-1].String() != testMAC {
		return nil, refusal{403, "no such NICs"}
	}
	return d.serve("application/toml", []byte("[global]\n"), macs[len(macs)-1], "answer.toml"), nil
}

func (d *bootService) serve(contentType string, body []byte, mac lab.MAC, name string) *boot.Document {
	return boot.NewDocument(contentType, body, func(ctx context.Context, _ time.Duration) error {
		if d.recording != nil {
			d.recording(ctx)
		}
		d.note("read %s %s %d", mac, name, len(body))
		return nil
	}, nil)
}

func (d *bootService) Report(_ context.Context, mac lab.MAC, query string, _ netip.Addr) error {
	d.note("report %s %s", mac, query)
	if query == "" {
		return refusal{403, "nothing told"}
	}
	return nil
}

func (d *bootService) Done(ctx context.Context, mac lab.MAC, token string, _ netip.Addr) error {
	if d.recording != nil {
		d.recording(ctx)
	}
	d.note("done %s", mac)
	if token != testToken {
		return refusal{403, "wrong token " + token}
	}
	return nil
}

// leases know one address, beside those of hosts.
type leases struct{}

func (leases) MACOf(in *lab.Lab, a netip.Addr) (lab.MAC, bool) {
	for _, h := range in.Hosts {
		if h.IP == a {
			return h.MACs[0], true
		}
	}
	m, _ := lab.ParseMAC(testMAC)
	return m, a.IsLoopback()
}

// A recorder hands events on.
type recorder struct {
	news chan event.Event // nil: nobody cares
}

func (r *recorder) Record(e event.Event) {
	if r.news != nil {
		r.news <- e
	}
}

// next waits for one event.
func (r *recorder) next(t *testing.T) event.Event {
	t.Helper()
	select {
	case e := <-r.news:
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
		return event.Event{}
	}
}

// settled waits for n events and returns what came, as "kind mac detail bytes err": a server's event may come a moment
// after its answer.
func (r *recorder) settled(t *testing.T, n int) (lines []string) {
	t.Helper()
	for range n {
		lines = append(lines, line(r.next(t)))
	}
	return append(lines, r.tell()...)
}

// tell returns what came until now.
func (r *recorder) tell() (lines []string) {
	for {
		select {
		case e := <-r.news:
			lines = append(lines, line(e))
		default:
			return lines
		}
	}
}

func line(e event.Event) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %d %s", e.Kind, e.MAC, e.Text(), e.Bytes, e.Err))
}

// A bootServer is an HTTP server for machines on loopback.
type bootServer struct {
	dir     string
	service *bootService
	events  *recorder
	logs    *logBuffer
	reg     *prometheus.Registry
	addr    string
	table   atomic.Pointer[httpd.Table]
	boot    *httpd.Boot
	stop    context.CancelFunc
	ended   chan error
}

func (w *bootServer) url(path string) string { return "http://" + w.addr + path }

// image is content that cannot be guessed, so that a byte out of place shows.
func image(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8(sha256.Sum256([]byte("image")))
	_, _ = r.Read(b)
	return b
}

func newBootServer(t testing.TB, limits httpd.Limits, files map[string][]byte) *bootServer {
	t.Helper()
	w := &bootServer{
		dir: t.TempDir(), service: &bootService{document: []byte(`{"ignition":{"version":"3.4.0"}}`)}, logs: &logBuffer{},
		events: &recorder{news: make(chan event.Event, 1000)}, reg: prometheus.NewRegistry(), ended: make(chan error, 1),
	}
	for name, content := range files {
		write(t, filepath.Join(w.dir, name), content)
	}
	w.serve(t)
	mirrors, err := mirror.New(mirror.Config{Dir: t.TempDir()}, mirror.Deps{
		Mirrors: func() []*lab.Mirror { return nil }, Events: w.events, Registerer: w.reg, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Own: func(netip.Addr) bool { return false }, Admin: func() []netip.AddrPort { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	level := slog.LevelDebug
	if _, ok := t.(*testing.B); ok {
		level = slog.LevelInfo
	}
	b, err := httpd.NewBoot(httpd.BootConfig{Limits: limits}, httpd.BootDeps{
		Table: w.table.Load, Boot: w.service, Leases: leases{}, Mirrors: mirrors, Events: w.events, Registerer: w.reg,
		Firmware: firmware(), Now: time.Now,
		Log: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr, w.boot = l.Addr().String(), b
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.ended <- errors.Join(b.Serve(ctx, l), l.Close()) }() // Serve closes no listener
	t.Cleanup(w.end(t))
	return w
}

// serve applies a lab with one profile and these mirrors.
func (w *bootServer) serve(t testing.TB, mirrors ...*lab.Mirror) {
	t.Helper()
	l := &lab.Lab{
		Appliance: lab.Appliance{Files: w.dir},
		Profiles: []*lab.Profile{{
			Name: "p", Kernel: "images/vmlinuz", Initrd: []string{"images/initrd.img", "images/gone.img"}, Rootfs: "images/link",
			Config: "public/secret.ign",
		}},
		Mirrors: mirrors, Images: []*lab.Image{{Path: "images/initrd.img"}, {Path: "public/fcos"}, {Path: "public/dir"}},
	}
	allowed, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	w.table.Store(httpd.Compile(l, allowed))
}

// end stops the server and fails the test unless it ends well.
func (w *bootServer) end(t testing.TB) func() {
	return func() {
		w.stop()
		select {
		case err := <-w.ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
			w.ended <- nil
		case <-time.After(patience):
			t.Error("Serve does not end")
		}
	}
}

func firmware() fs.FS {
	return fstest.MapFS{
		"ipxe.efi":         {Data: bytes.Repeat([]byte("MZ"), 5000), ModTime: time.Unix(1700000000, 0)},
		"undionly.kpxe":    {Data: []byte("PXE")},
		"grub/x/grubx.efi": {Data: []byte("MZ grub")},
	}
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// curl asks as a stranger does and returns the answer, header first.
func curl(t *testing.T, args ...string) (header, body string) {
	t.Helper()
	netns.Need(t, "curl")
	cmd := exec.Command("curl", append([]string{"-q", "-sS", "--noproxy", "*", "--path-as-is", "--max-time", "60", "-D", "/dev/stderr"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.ReplaceAll(errs.String(), "\r\n", "\n"), out.String()
}
