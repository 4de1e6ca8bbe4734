package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/pause"
)

const isolated = "BOOTLAB_NETNS_ISOLATED"

// Main runs the tests of m and exits. As root it runs them in a network namespace of their own, whose loopback is up.
func Main(m *testing.M) {
	if Inside() {
		_ = loopbackUp() // without the privilege for it, it is up already
	}
	if os.Geteuid() != 0 || Inside() {
		os.Exit(m.Run())
	}
	code, err := Isolate(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "netns:", err)
	}
	os.Exit(code)
}

// Inside reports whether this process was started by Isolate.
func Inside() bool { return os.Getenv(isolated) != "" }

// loopbackUp sets the loopback interface up, which is down in a new namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// Enter moves the calling test into a new network namespace, so that tests with the same addresses may run in parallel. Sockets
// that the test's own goroutine opens and processes that it starts are in that namespace; those of goroutines that it starts,
// subtests included, are not. The namespace ends with the test and its processes.
func Enter(t testing.TB) {
	t.Helper()
	Need(t, "root")
	runtime.LockOSThread() // never unlocked: the thread ends with the test, as it cannot be used for anything else
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := loopbackUp(); err != nil {
		t.Fatalf("set the loopback interface up: %v", err)
	}
}

// Isolate runs this program again, with its arguments, in network and mount namespaces of its own, and returns its exit
// code. When ctx ends the program gets SIGTERM. An error means that it did not start.
func Isolate(ctx context.Context) (exitCode int, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// A mount namespace too, so that names given by "ip netns add" vanish with the process.
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return 1, fmt.Errorf("run in a network namespace: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Need skips the test unless it has all that it needs: "root", "ipv6" of the kernel, programs by name, files by path. For a need that BOOTLAB_REQUIRE lists
// (comma-separated; "all" for everything) it fails the test instead, so that CI skips nothing. With -short it always skips.
func Need(t testing.TB, needs ...string) {
	t.Helper()
	if testing.Short() && len(needs) > 0 {
		t.Skipf("needs %s: not with -short", strings.Join(needs, ", "))
	}
	for _, need := range needs {
		if missing := lacking(need); missing != "" {
			Absent(t, need, missing)
		}
	}
}

// Absent ends a test that needs something which this machine lacks: it skips it, or fails it if BOOTLAB_REQUIRE has the need, or all.
func Absent(t testing.TB, need string, why any) {
	t.Helper()
	required := strings.Split(os.Getenv("BOOTLAB_REQUIRE"), ",")
	if slices.Contains(required, need) || slices.Contains(required, "all") {
		t.Fatalf("needs %s: %v", need, why)
	}
	t.Skipf("needs %s: %v", need, why)
}

func lacking(need string) string {
	if need == "root" {
		if os.Geteuid() != 0 {
			return "not started as root"
		}
		return ""
	}
	if need == "ipv6" {
		off, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
		if err != nil || strings.TrimSpace(string(off)) != "0" {
			return "the kernel has no IPv6, or it is disabled for new interfaces"
		}
		return ""
	}
	if filepath.IsAbs(need) {
		if _, err := os.Stat(need); err != nil {
			return err.Error()
		}
		return ""
	}
	if _, err := exec.LookPath(need); err != nil {
		return err.Error()
	}
	return ""
}

// Run runs a command and returns what it wrote to its standard output: ip complains of namespaces that other tests end meanwhile. It fails the
// test with all output unless the command succeeds.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var complaints strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, complaints.String())
	}
	return string(out)
}

// WaitFor waits until ok, and fails the test after two minutes, which only ends what hangs.
func WaitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !ok() {
		if pause.For(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("waited two minutes for %s", what)
		}
	}
}

// Tries calls try up to n times, until it has no complaint, and fails the test with the last one: a busy machine is late now and then, a
// fault is there every time.
func Tries(t testing.TB, n int, try func(i int) (complaint string)) {
	t.Helper()
	for i := 1; ; i++ {
		complaint := try(i)
		switch {
		case complaint == "":
			return
		case i == n:
			t.Errorf("%s, at each of %d tries", complaint, n)
			return
		}
		t.Logf("try %d: %s", i, complaint)
	}
}

var serial atomic.Uint32

// A Segment is a bridge in the test's own namespace.
type Segment struct {
	Bridge string
}

// NewSegment makes a bridge with that address (CIDR), up and without spanning tree. It is removed with the test.
func NewSegment(t testing.TB, cidr string) *Segment {
	t.Helper()
	Need(t, "root", "ip")
	s := &Segment{Bridge: fmt.Sprintf("lab%d", serial.Add(1))}
	Run(t, "ip", "link", "add", s.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", s.Bridge).Run() })
	Run(t, "ip", "addr", "add", cidr, "dev", s.Bridge)
	Run(t, "ip", "link", "set", s.Bridge, "up")
	return s
}

// A Client is a namespace whose eth0 is joined to a segment.
type Client struct {
	Name string // of the namespace
	NIC  string // of the segment's end of the pair
}

// NewClient makes a client without an address. mac may set its MAC.
func (s *Segment) NewClient(t testing.TB, mac ...string) *Client {
	t.Helper()
	n := serial.Add(1)
	c := &Client{Name: fmt.Sprintf("client%d-%d", os.Getpid(), n), NIC: fmt.Sprintf("veth%d", n)}
	Run(t, "ip", "netns", "add", c.Name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", c.Name).Run() })
	Run(t, "ip", "link", "add", c.NIC, "type", "veth", "peer", "name", "eth0", "netns", c.Name)
	Run(t, "ip", "link", "set", c.NIC, "master", s.Bridge, "up")
	Run(t, "ip", "-n", c.Name, "link", "set", "lo", "up")
	for _, m := range mac {
		Run(t, "ip", "-n", c.Name, "link", "set", "eth0", "address", m)
	}
	Run(t, "ip", "-n", c.Name, "link", "set", "eth0", "up")
	AwaitUp(t, s.Bridge, c.NIC)
	c.AwaitUp(t, "eth0")
	return c
}

// AwaitUp waits until links of the test's namespace carry frames, which is a moment after they are set up. Frames sent before are lost, and
// a lost ARP request costs a second.
func AwaitUp(t testing.TB, links ...string) {
	t.Helper()
	awaitUp(t, links, "ip")
}

// AwaitUp is the same for links of the client.
func (c *Client) AwaitUp(t testing.TB, links ...string) {
	t.Helper()
	awaitUp(t, links, "ip", "-n", c.Name)
}

func awaitUp(t testing.TB, links []string, ip ...string) {
	t.Helper()
	for _, link := range links {
		WaitFor(t, link+" to carry frames", func() bool {
			fields := strings.Fields(Run(t, ip[0], append(ip[1:], "-br", "link", "show", "dev", link)...))
			return len(fields) > 1 && fields[1] == "UP"
		})
	}
}

// Command returns a command that will run inside the client's namespace.
func (c *Client) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", c.Name, name}, args...)...)
}

// Run runs a command inside the client's namespace, for two minutes at most, and fails the test with its output unless it succeeds.
func (c *Client) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := c.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
