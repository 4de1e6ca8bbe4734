package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A rig is a whole daemon in the test's own network namespace.
type rig struct {
	t      *testing.T
	seg    *netns.Segment
	lab    string // path
	client *api.Client
	log    *buffer
	stop   func() error

	registry *prometheus.Registry // nil: the daemon's own
	trap     string               // a log line that panics; empty: none
	fails    string               // what the daemon is to end with, or the beginning of it; empty: nil
}

// A buffer is a log that many write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

const labFile = `
version: 1
lab: t
domain: lab.test
appliance: {state: state, admin_socket: admin.sock, user: root, confine: off, http: "%[1]s:8080", tftp: "%[1]s:69", dns: "%[1]s:53", admin: "%[1]s:9680"}
networks:
  n: {subnet: %[1]s/24, interface: %[2]s, address: %[1]s}
hosts:
  a: {mac: "52:54:00:00:00:01", ip: %[1]s1}
  b: {mac: "52:54:00:00:00:02", ip: %[1]s2}
  c: {mac: "52:54:00:00:00:03", ip: %[1]s3}
`

// newRig writes a lab for a segment of its own.
func newRig(t *testing.T, address string) *rig {
	t.Helper()
	seg := netns.NewSegment(t, address+"/24")
	r := &rig{t: t, seg: seg, lab: filepath.Join(t.TempDir(), "lab.yaml"), log: &buffer{}}
	subnet := strings.Replace(labFile, "%[1]s/24", address+"/24", 1)
	r.write(strings.Replace(fmt.Sprintf(subnet, address, seg.Bridge), address+"/24", address[:strings.LastIndex(address, ".")]+".0/24", 1))
	var err error
	if r.client, err = api.NewClient(filepath.Join(filepath.Dir(r.lab), "admin.sock"), ""); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.lab, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read() string {
	r.t.Helper()
	b, err := os.ReadFile(r.lab)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// start runs the daemon until the test ends, and waits until it answers.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	var handler slog.Handler = slog.NewTextHandler(r.log, nil)
	if r.trap != "" {
		handler = trap{handler, r.trap}
	}
	go func() {
		ended <- daemon.Run(ctx, daemon.Config{Lab: r.lab, Version: "test", Log: slog.New(handler), Registry: r.registry})
	}()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	r.t.Cleanup(func() {
		if err := r.stop(); (err != nil) != (r.fails != "") || err != nil && !strings.HasPrefix(err.Error(), r.fails) {
			r.t.Errorf("the daemon ended with: %v, want %q", err, r.fails)
		}
	})
	r.until("the daemon answers", func() bool { _, err := r.client.Status(ctx); return err == nil })
}

// patience only ends what hangs: a slow disk is shown for a minute.
const patience = 2 * time.Minute

// until waits for something that the daemon does by itself.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within %s; log:\n%s", what, patience, r.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *rig) status() api.Status {
	r.t.Helper()
	s, err := r.client.Status(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) get(url string) string {
	r.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// TestReload is the life of a lab file: changed, broken, mended, cut in half.
func TestReload(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.71.0.1")
	r.start()
	good := r.read()

	r.write(strings.Replace(good, "  c: {mac: \"52:54:00:00:00:03\"", "  added: {mac: \"52:54:00:00:00:03\"", 1))
	r.until("a changed file reloads", func() bool { return r.status().Generation == 2 })

	r.write(good + "  d: {mac: nonsense}\n")
	r.until("a broken file is refused", func() bool { return r.status().Reload.Err != "" })
	if s := r.status(); s.Generation != 2 || !strings.Contains(s.Reload.Err, "nonsense") {
		t.Errorf("after a broken file: generation %d, reason %q", s.Generation, s.Reload.Err)
	}
	r.until("a metric says that the last lab was refused", func() bool { // after the status
		return strings.Contains(r.get("http://10.71.0.1:9680/metrics"), "\n"+metrics.LabSuccess+" 0\n")
	})
	r.until("a log line says that the lab was refused", func() bool { return strings.Contains(r.log.String(), "lab_refused") })

	r.write(good[:strings.Index(good, "  b: {mac")])
	r.until("half of a lab is refused", func() bool { return strings.Contains(r.status().Reload.Err, "--force") })
	if _, err := r.client.Reload(t.Context(), api.Forced); err != nil {
		t.Errorf("a forced reload: %v", err)
	}
	if s := r.status(); s.Generation != 3 || s.Reload.Err != "" {
		t.Errorf("after a forced reload: %+v", s)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.until("SIGHUP reloads", func() bool { return r.status().Generation == 4 })
}

// TestOneRequestOneSnapshot: a reload in the middle of a request, here while a controller is asked for the power of its machine, changes
// nothing of the answer: an interface that only the new lab names is none of the facts of a diagnosis by the old one.
func TestOneRequestOneSnapshot(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.71.1.1")
	var reloaded sync.Once
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reloaded.Do(func() {
			r.write(strings.Replace(r.read(), "hosts:", "  far: {subnet: 10.71.2.0/24, interface: nowhere0, address: 10.71.2.1}\nhosts:", 1))
			if _, err := r.client.Reload(t.Context(), api.Careful); err != nil {
				t.Error(err)
			}
		})
		_, _ = io.WriteString(w, `{"PowerState": "On"}`)
	}))
	defer controller.Close()
	r.write(strings.Replace(r.read(), "  a: {", "  a: {bmc: {redfish: \""+controller.URL+"/redfish/v1/Systems/1\"}, ", 1))
	r.start()
	for _, want := range []bool{false, true} {
		d, err := r.client.Why(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(d.Facts, "\n"), "nowhere0"); got != want {
			t.Errorf("generation %d of the lab; the facts name its new interface: %v, want %v: %q", r.status().Generation, got, want, d.Facts)
		}
	}
}

// TestApplianceNeedsRestart is about keys that a running daemon cannot change.
func TestApplianceNeedsRestart(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.72.0.1")
	r.start()
	r.write(strings.Replace(r.read(), ":8080", ":8081", 1))
	r.until("the change is noticed", func() bool { return r.status().Generation == 2 })
	r.until("a warning says to restart", func() bool {
		s := r.status()
		return len(s.Warnings) > 0 && strings.Contains(s.Warnings[0].Error(), "restart")
	})
	p, err := r.client.Plan(t.Context(), "", api.Hidden)
	if err != nil || !strings.Contains(p, "10.72.0.11") {
		t.Errorf("plan: %v\n%s", err, p)
	}
}

// TestPortInUse wants to know who holds the port.
func TestPortInUse(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.73.0.1")
	l, err := net.Listen("tcp", "10.73.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dhcp, err := segment.Listen(r.seg.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	defer dhcp.Close()
	err = daemon.Run(t.Context(), daemon.Config{Lab: r.lab, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "listen udp :67: address already in use by ") {
		t.Errorf("error %v, want the port of DHCP, too", err)
	}
	self := fmt.Sprintf("(pid %d)", os.Getpid())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "appliance.http") || !strings.Contains(err.Error(), self) {
		t.Errorf("error %v, want one that names appliance.http and %s", err, self)
	}
}

// TestBrokenLabStartsNothing wants every problem, and no port open.
func TestBrokenLabStartsNothing(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.74.0.1")
	r.write(r.read() + "  d: {mac: nonsense}\n  e: {ip: 1.2.3.4, colour: red}\n")
	err := daemon.Run(t.Context(), daemon.Config{Lab: r.lab, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "colour") {
		t.Errorf("error %v, want both problems", err)
	}
}

// TestStateOutlivesTheDaemon arms, drains nothing, and comes back.
func TestStateOutlivesTheDaemon(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.75.0.1")
	r.write(strings.Replace(r.read(), "hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\nhosts:\n  a: {profile: p, ", 1))
	r.start()
	if got := r.get("http://10.75.0.1:8080/boot/52-54-00-00-00-01/boot.ipxe"); strings.Contains(got, "kernel") {
		t.Errorf("an unknown machine got the script of a:\n%s", got)
	}
	hosts, err := r.client.Hosts(t.Context())
	if err != nil || hosts[0].Install != "armed" {
		t.Fatalf("hosts %+v, %v; want a armed", hosts, err)
	}
	if _, err := r.client.Install(t.Context(), "b", api.CycleLater); err == nil {
		t.Error("b was armed, with nothing to install")
	}
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Error(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.start()
	boots, err := r.client.Boots(t.Context(), "a")
	if err != nil || len(boots) == 0 {
		t.Errorf("after a restart the timeline of a is empty: %v", err)
	}
}

// TestRenamedHost: an installed machine whose host gets another name, in a reload or while the daemon is stopped, is not installed again.
func TestRenamedHost(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.76.1.1")
	r.write(strings.Replace(r.read(), "hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\nhosts:\n  a: {profile: p, ", 1))
	r.start()
	if _, err := r.client.MarkInstalled(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		hosts, err := r.client.Hosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return hosts[0].Name + " " + hosts[0].Install
	}
	r.write(strings.Replace(r.read(), "  a: {", "  a1: {", 1))
	r.until("the changed file reloads", func() bool { return r.status().Generation == 2 })
	if got := state(); got != "a1 installed" {
		t.Errorf("after the reload: %s, want a1 installed", got)
	}
	r.until("the log names both", func() bool { return strings.Contains(r.log.String(), "host=a1 was=a ") })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.write(strings.Replace(r.read(), "  a1: {", "  a2: {", 1))
	r.start()
	if got := state(); got != "a2 installed" {
		t.Errorf("after the restart: %s, want a2 installed", got)
	}
}

// TestStateRemovedWhileRunning: the state file of a running daemon is deleted, or another one is put in its place; it reports that as a
// degraded store until it is over, and loses nothing in a stop that is in order.
func TestStateRemovedWhileRunning(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.66.0.1"
	r := newRig(t, addr)
	r.write(strings.Replace(r.read(), "hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\nhosts:\n  a: {profile: p, ", 1))
	r.start()
	if _, err := r.client.MarkInstalled(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(r.lab), "state", "state.db")
	degraded := func(cause, problem string) {
		t.Helper()
		r.untilStore(addr, "degraded: "+cause)
		s := r.status()
		if len(s.Store.Problems) != 1 || !strings.Contains(s.Store.Problems[0], problem) {
			t.Errorf("problems %q, want one: %s", s.Store.Problems, problem)
		}
		if strings.Contains(s.Warnings.Error(), problem) {
			t.Errorf("warnings %q repeat the problem of the store", s.Warnings)
		}
		r.until("the log has it", func() bool {
			return strings.Contains(r.log.String(), `msg="state store is degraded" cause="`+cause+`"`)
		})
	}
	r.untilStore(addr, "ok\n")
	kept := file + ".kept"
	if err := os.Rename(file, kept); err != nil {
		t.Fatal(err)
	}
	degraded("state file was removed", "state.db was removed while in use")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	degraded("state file was replaced", "state.db was replaced while in use")
	if err := os.Rename(kept, file); err != nil {
		t.Fatal(err)
	}
	r.untilStore(addr, "ok\n")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.untilStore(addr, "degraded: state file was removed")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.start()
	hosts, err := r.client.Hosts(t.Context())
	if err != nil || hosts[0].Install != "installed" {
		t.Errorf("hosts %+v, %v; want a installed", hosts, err)
	}
}

// TestAddressComesLater starts before the bridge exists whose address is the appliance's.
func TestAddressComesLater(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.70.0.1")
	r.write(strings.Replace(r.read(), ", address: 10.70.0.1", "", 1))
	bridge := regexp.MustCompile(`interface: (\w+)`).FindStringSubmatch(r.read())[1]
	netns.Run(t, "ip", "addr", "del", "10.70.0.1/24", "dev", bridge)
	r.write(strings.NewReplacer(`"10.70.0.1:`, `"127.0.0.1:`).Replace(r.read()))
	r.start()
	if s := r.status(); len(s.Warnings) == 0 {
		t.Error("no warning that the address is not known")
	}
	netns.Run(t, "ip", "addr", "add", "10.70.0.1/24", "dev", bridge)
	r.until("the address is noticed", func() bool { return r.status().Generation == 2 })
	if p, err := r.client.Plan(t.Context(), "", api.Hidden); err != nil || !strings.Contains(p, "10.70.0.1 ") {
		t.Errorf("plan: %v\n%s", err, p)
	}
}

// TestInterfaceGoes: a network whose interface, or whose address, is removed under the running daemon is logged once, and only
// while it is away.
func TestInterfaceGoes(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.67.0.1")
	bridge := regexp.MustCompile(`interface: (\w+)`).FindStringSubmatch(r.read())[1]
	r.write(strings.NewReplacer(`"10.67.0.1:`, `"127.0.0.1:`).Replace(r.read()))
	r.start()
	warned := func(text string) bool {
		return strings.Contains(r.status().Warnings.Error(), text)
	}
	if s := r.status(); len(s.Warnings) > 0 {
		t.Errorf("warnings %q, want none", s.Warnings)
	}
	netns.Run(t, "ip", "addr", "del", "10.67.0.1/24", "dev", bridge)
	if !warned("no interface of this machine has 10.67.0.1") {
		t.Errorf("the address is gone; warnings %q", r.status().Warnings)
	}
	netns.Run(t, "ip", "addr", "add", "10.67.0.1/24", "dev", bridge)
	netns.Run(t, "ip", "link", "set", bridge, "down", "name", bridge+"x")
	r.until("dhcpd reports that the interface has another name", func() bool {
		return r.server("dhcpd").Err == bridge+": interface does not exist"
	})
	netns.Run(t, "ip", "link", "set", bridge+"x", "up", "name", bridge)
	r.until("dhcpd serves it again", func() bool { s := r.server("dhcpd"); return s.Serving && s.Err == "" })
	if s := r.status(); len(s.Warnings) > 0 {
		t.Errorf("warnings %q, want none any more", s.Warnings)
	}
	if n := strings.Count(r.log.String(), "interface does not exist"); n != 1 {
		t.Errorf("the log has it %d times", n)
	}
}

// TestAddressOfNobody says an address that this machine does not have, and then has it.
func TestAddressOfNobody(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.76.0.1")
	r.write(strings.Replace(r.read(), "address: 10.76.0.1", "address: 10.76.0.9", 1))
	r.start()
	const want = "networks.n.address: no interface of this machine has 10.76.0.9"
	if s := r.status(); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].Error(), want) {
		t.Errorf("warnings %q, want one with %q", s.Warnings, want)
	}
	bridge := regexp.MustCompile(`interface: (\w+)`).FindStringSubmatch(r.read())[1]
	netns.Run(t, "ip", "addr", "add", "10.76.0.9/24", "dev", bridge)
	r.until("the address is noticed", func() bool { s := r.status(); return s.Generation == 2 && len(s.Warnings) == 0 })
}

// TestFirstStart: each start says which machines would install themselves, until an admin has said what all of them are.
func TestFirstStart(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.68.0.1")
	r.write(strings.NewReplacer("address: 10.68.0.1}", "address: 10.68.0.1, pools: {guests: {range: 10.68.0.50-10.68.0.59, profile: p}, own: {range: 10.68.0.60-10.68.0.69, mac: '02:00:00:*:*:*', profile: q}}}",
		"hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\n  q: {kernel: k}\nhosts:\n  a: {profile: p, ",
		"  b: {", "  b: {profile: q, ", "  c: {", "  c: {profile: p, ").Replace(r.read()))
	const first = `msg="first start of this lab: machines install themselves at their next network boot" `
	restarted := func(want string) {
		t.Helper()
		if r.stop != nil {
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		before := len(r.log.String())
		r.start()
		got := r.log.String()[before:]
		if n := strings.Count(got, first); want == "" && n != 0 || want != "" && (n != 1 || !strings.Contains(got, first+want+" advice=")) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	restarted(`hosts="[a c]" pools=[n/guests]`)
	if _, err := r.client.MarkInstalled(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	restarted(`hosts=[c] pools=[n/guests]`)
	restarted(`hosts=[c] pools=[n/guests]`)
	if _, err := r.client.AcceptState(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	restarted("")
}
