package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// The network that every test's lab lives in.
const (
	cidr      = "10.77.0.1/24"
	appliance = "10.77.0.1"
)

// A rig is one lab with a running daemon.
type rig struct {
	dir    string // of the lab file; socket, state and files are below it
	seg    *netns.Segment
	daemon *daemon
}

// A daemon is one run of bootlab serve.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Write takes what the daemon logs.
func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(p)
}

func (d *daemon) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// tail returns the last lines of the log: few, as the reason of a failure stands before them.
func (d *daemon) tail() string {
	log := d.text()
	return log[max(0, len(log)-4000):]
}

// start bounds the start of the daemon, which takes a fraction of a second.
const start = time.Minute

// newRig moves the test into its own network namespace, writes a lab and starts the daemon on it. In the lab file, BRIDGE stands
// for the segment and DIR for the folder.
func newRig(t testing.TB, labFile string, files map[string]string) *rig {
	t.Helper()
	netns.Need(t, "root", "ip")
	netns.Enter(t)
	return newRigHere(t, labFile, files)
}

// shortDir returns a new folder with a short name, for the paths of sockets, that the user that the daemon becomes may enter.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startLibvirt runs a libvirtd that the daemon may use. It stops at the end of the test.
func startLibvirt(t testing.TB) *libvirtd.Daemon {
	t.Helper()
	d, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: shortDir(t), Group: "nogroup"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	return d
}

// newRigHere is newRig in the network namespace that the test is in already.
func newRigHere(t testing.TB, labFile string, files map[string]string) *rig {
	t.Helper()
	dir := shortDir(t)
	r := &rig{dir: dir, seg: netns.NewSegment(t, cidr)}
	labFile = strings.NewReplacer("BRIDGE", r.seg.Bridge, "DIR", dir).Replace(labFile)
	put(t, filepath.Join(dir, "lab.yaml"), []byte(labFile))
	for name, body := range files {
		put(t, filepath.Join(dir, "files", name), []byte(body))
	}
	r.start(t)
	t.Cleanup(func() { r.stop(t) })
	return r
}

// withLong adds to the variants of a test those that only make test-long runs: other tests of make test boot the same firmware, or the
// same system.
func withLong[T any](variants []T, long ...T) []T {
	if os.Getenv("BOOTLAB_LONG") != "" {
		variants = append(variants, long...)
	}
	return variants
}

// withGuest returns files and those of the guest.
func withGuest(t testing.TB, files map[string]string) map[string]string {
	t.Helper()
	netns.Need(t, guest.Programs()...)
	g, err := guest.Build(t.Context(), guest.CacheDir())
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(files)
	for name, from := range map[string]string{"images/vmlinuz": g.Kernel, "images/initrd.img": g.Initrd, "public/disk.img": g.Disk} {
		body, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(body)
	}
	return all
}

func put(t testing.TB, path string, body []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
}

// start runs the daemon and waits for its READY=1.
func (r *rig) start(t testing.TB) {
	t.Helper()
	notify := filepath.Join(r.dir, "notify")
	_ = os.Remove(notify)
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if err := os.Chmod(notify, 0o666); err != nil { // the daemon is no longer root when it is ready
		t.Fatal(err)
	}
	d := &daemon{done: make(chan struct{})}
	d.cmd = exec.Command(os.Getenv(binaryVar), "serve", "--lab", filepath.Join(r.dir, "lab.yaml"), "--log-level", "debug")
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify)
	d.cmd.Stdout, d.cmd.Stderr = d, d
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.daemon = d
	go func() {
		_ = d.cmd.Wait()
		sock.Close() // the daemon ended: stop waiting
		close(d.done)
	}()
	if err := sock.SetReadDeadline(time.Now().Add(start)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	for {
		n, err := sock.Read(buf)
		if err != nil {
			t.Fatalf("%s\nno READY=1 from the daemon: %v", d.tail(), err)
		}
		if bytes.Contains(buf[:n], []byte("READY=1")) {
			return
		}
	}
}

// kill kills the daemon, as a power cut does.
func (r *rig) kill(t testing.TB) {
	t.Helper()
	if err := r.daemon.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.daemon.done
}

// stop ends the daemon by SIGTERM; it must exit with 0.
func (r *rig) stop(t testing.TB) {
	d := r.daemon
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(start):
		t.Error("the daemon does not stop")
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	log := d.text()
	for _, bad := range []string{"DATA RACE", "panic:", "level=ERROR"} {
		if _, line, found := strings.Cut(log, bad); found {
			line, _, _ = strings.Cut(line, "\n")
			t.Errorf("the daemon's log holds %s%s", bad, line)
		}
	}
	if t.Failed() {
		t.Logf("the daemon's log, the end:\n%s", d.tail())
	}
}

// client returns a client of the daemon's socket.
func (r *rig) client(t testing.TB) *api.Client {
	t.Helper()
	c, err := api.NewClient(filepath.Join(r.dir, "admin.sock"), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bootlab runs a command of bootlab and returns what it prints.
func (r *rig) bootlab(t testing.TB, args ...string) []byte {
	t.Helper()
	out, err := r.try(args...)
	if err != nil {
		t.Fatalf("bootlab %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (r *rig) try(args ...string) ([]byte, error) {
	cmd := exec.Command(os.Getenv(binaryVar), append(args, "--lab", filepath.Join(r.dir, "lab.yaml"))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return out, err
}

// ask runs a command of bootlab with --json and decodes what it prints.
func ask[T any](t testing.TB, r *rig, args ...string) (v T) {
	t.Helper()
	out := r.bootlab(t, append(args, "--json")...)
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("bootlab %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

// host returns the state of a host.
func (r *rig) host(t testing.TB, name string) api.Host {
	t.Helper()
	hosts := ask[[]api.Host](t, r, "hosts")
	i := slices.IndexFunc(hosts, func(h api.Host) bool { return h.Name == name })
	if i < 0 {
		t.Fatalf("bootlab hosts has no %s: %+v", name, hosts)
	}
	return hosts[i]
}

// wantKinds waits until the timeline of a host has these kinds of event in this order; others may be between them. A machine shows what it
// received before the daemon knows that it did.
func (r *rig) wantKinds(t testing.TB, host string, want ...event.Kind) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		seen := r.events(t, host)
		missing, ok := lacks(seen, want)
		if !ok {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the timeline of %s lacks %s; it has:\n%s", host, missing, timeline(seen))
			return
		}
	}
}

// lacks returns the first kind that events do not have in the wanted order.
func lacks(seen []event.Event, want []event.Kind) (missing event.Kind, ok bool) {
	for _, kind := range want {
		i := slices.IndexFunc(seen, func(e event.Event) bool { return e.Kind == kind })
		if i < 0 {
			return kind, true
		}
		seen = seen[i+1:]
	}
	return missing, false
}

// events returns the timeline of a host, the oldest first.
func (r *rig) events(t testing.TB, host string) (seen []event.Event) {
	t.Helper()
	for _, b := range ask[[]api.Boot](t, r, "timeline", host, "--all") {
		seen = append(seen, b.Events...)
	}
	slices.SortFunc(seen, func(a, b event.Event) int { return a.At.Compare(b.At) })
	return seen
}

// count returns how many events of a kind the timeline of a host has.
func (r *rig) count(t testing.TB, host string, kind event.Kind) (n int) {
	t.Helper()
	for _, e := range r.events(t, host) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// wantNo checks that the timeline of a host has no event of these kinds.
func (r *rig) wantNo(t testing.TB, host string, kinds ...event.Kind) {
	t.Helper()
	seen := r.events(t, host)
	if slices.ContainsFunc(seen, func(e event.Event) bool { return slices.Contains(kinds, e.Kind) }) {
		t.Errorf("the timeline of %s has one of %v:\n%s", host, kinds, timeline(seen))
	}
}

func timeline(events []event.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %-18s %s %s\n", e.At.Format("15:04:05.000"), e.Kind, e.Detail, e.Err)
	}
	return b.String()
}

// follow calls fn with the events of a host until fn returns true, and fails the test after within.
func (r *rig) follow(t testing.TB, host string, within time.Duration, fn func(event.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	found := errors.New("found")
	var seen []event.Event
	err := r.client(t).Follow(ctx, host, func(e event.Event) error {
		seen = append(seen, e)
		if fn(e) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Fatalf("follow %s: %v; seen:\n%s", host, err, timeline(seen))
	}
}

// eventually calls fn until it returns nil, and fails the test with its last error after within.
func eventually(t testing.TB, within time.Duration, fn func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", within, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
