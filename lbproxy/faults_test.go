package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestFaultsAreOurs: what fails on this machine is no evidence against a backend, for connections and for checks.
func TestFaultsAreOurs(t *testing.T) {
	t.Parallel()
	back4, back6 := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::1]:1")
	for _, test := range []struct {
		err  error
		to   netip.AddrPort
		want fault
	}{
		{syscall.EMFILE, back4, faultDescriptors},
		{syscall.ENFILE, back4, faultDescriptors},
		{syscall.EADDRNOTAVAIL, back4, faultPorts},
		{syscall.EAGAIN, back4, faultPorts}, // UDP
		{syscall.ENOBUFS, back4, faultMemory},
		{syscall.ENOMEM, back4, faultMemory},
		{syscall.EPERM, back6, faultDenied},
		{syscall.EACCES, back4, faultDenied},
		{&faultError{faultFile, os.ErrNotExist}, back4, faultFile},
		{syscall.EACCES, back6, ""}, // ICMPv6: administratively prohibited
		{syscall.ECONNREFUSED, back4, ""},
		{syscall.ECONNRESET, back4, ""},
		{syscall.EHOSTUNREACH, back4, ""},
		{syscall.ENETUNREACH, back4, ""},
		{syscall.ETIMEDOUT, back4, ""},
		{context.DeadlineExceeded, back4, ""},
		{errors.New("status 500, want 2xx"), back4, ""},
	} {
		t.Run(fmt.Sprintf("%v of %s", test.err, test.to.Addr()), func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("in between: %w", dialFailure(test.to, os.NewSyscallError("connect", test.err)))
			if got := faultOf(err, test.to.Addr()); got != test.want {
				t.Fatalf("faultOf = %q, want %q", got, test.want)
			}
			r := newTestServer(t, Config{}, balancer("b", addr(t), test.to))
			of := &r.active.Load().frontends[0].backends[0]
			for range 3 {
				r.checked(of.health, err, 0)
			}
			if got := of.health.down.Load(); got != (test.want == "") {
				t.Errorf("down by its checks: %t", got)
			}
			nobody := slices.Contains([]error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT, context.DeadlineExceeded}, test.err)
			if got := of.status().Unreachable; got != nobody {
				t.Errorf("unreachable: %t", got)
			}
			if _, reason, _ := of.currentHealth(); !strings.Contains(reason, test.err.Error()) {
				t.Errorf("the reason %q does not have the error", reason)
			}
			if test.want == "" {
				return
			}
			for range 2 * ejectSilent {
				r.connectFailed(of, err)
			}
			if of.state.ejected.Load() || of.state.traffic.errors.Load() != 0 {
				t.Error("counted against the backend")
			}
			if got := testutil.ToFloat64(r.metrics.faults.WithLabelValues(string(test.want))); got < 2*ejectSilent+3 {
				t.Errorf("%v faults are counted", got)
			}
			r.checked(of.health, nil, 0)
			if health, reason, _ := of.currentHealth(); health != Up || reason != "" {
				t.Errorf("after a check that passed it is %s (%s)", health, reason)
			}
		})
	}
}

// envLimited makes TestDescriptorsRunOut the process that has no descriptors: a balancer at its first address for a backend at the second.
const envLimited = "BOOTLAB_LBPROXY_LIMITED"

// TestDescriptorsRunOut: while the process has no descriptor left, its clients wait, and its backend stays up.
func TestDescriptorsRunOut(t *testing.T) {
	if at := os.Getenv(envLimited); at != "" {
		serveLimited(t, at)
		return
	}
	t.Parallel()
	netns.Need(t, "/proc/self/fd")
	front, back := addr(t), serveTCP(t, nameServer("b"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDescriptorsRunOut$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", envLimited, front, back))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	ask := func() (state string, faults int) {
		fmt.Fprintln(in)
		for lines.Scan() {
			if _, err := fmt.Sscanf(lines.Text(), "state %s faults %d", &state, &faults); err == nil {
				return state, faults
			}
		}
		t.Fatal("the process ended")
		return "", 0
	}
	netns.WaitFor(t, "the first check", func() bool { state, _ := ask(); return state == "up/false" })
	if got := readLine(t, dial(t, front)); got != "b" { // opens what is opened once
		t.Fatalf("answer %q", got)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = firstFree(t, cmd.Process.Pid) + 1 // for the client, not for its backend, nor for a check
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &low, nil); err != nil {
		t.Fatal(err)
	}
	client := dial(t, front)
	netns.WaitFor(t, "enough faults to take out a backend", func() bool {
		state, faults := ask()
		if state != "up/false" {
			t.Fatalf("without descriptors the backend is %s", state)
		}
		return faults >= 10
	})
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, client); got != "b" {
		t.Errorf("answer %q", got)
	}
}

// firstFree returns the least descriptor that a process has not in use.
func firstFree(t *testing.T, pid int) uint64 {
	t.Helper()
	for n := uint64(0); ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, n)); err != nil {
			return n
		}
	}
}

// serveLimited balances until its input ends. For each line it prints the backend's health, whether it ever was down, and the faults.
func serveLimited(t *testing.T, at string) {
	front, back, _ := strings.Cut(at, " ")
	b := balancer("b", netip.MustParseAddrPort(front), netip.MustParseAddrPort(back))
	b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 20 * time.Millisecond}
	r := newTestServer(t, Config{}, b)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		state := string(r.Status()[0].Backends[0].Health) + "/" + strconv.FormatBool(len(r.recorder.of(event.BackendDown)) > 0)
		fmt.Println("state", state, "faults", testutil.ToFloat64(r.metrics.faults.WithLabelValues(string(faultDescriptors))))
	}
}

// TestOwnFirewall: datagrams that a firewall of this machine drops do not eject a backend, and its session goes on when it lets them through.
func TestOwnFirewall(t *testing.T) {
	netns.Need(t, "root", "nft")
	back := serveUDP(t, "b")
	b := udpBalancer(t, lab.AnyResponses, back)
	r := newTestServer(t, Config{}, b)
	client := udpClient(t, listenOf(b))
	if got := sendUDP(t, client, "1", time.Minute); !strings.HasPrefix(got, "b 1") {
		t.Fatalf("answer %q", got)
	}
	table := fmt.Sprintf("lbfault%d", addrs.Add(1))
	netns.Run(t, "nft", fmt.Sprintf("table ip %s { chain out { type filter hook output priority 0; ip daddr %s udp dport %d drop; }; }", table, back.at.Addr(), back.at.Port()))
	open := func() { netns.Run(t, "nft", "delete table ip "+table) }
	defer func() {
		if t.Failed() {
			open()
		}
	}()
	denied := r.metrics.faults.WithLabelValues(string(faultDenied))
	netns.WaitFor(t, "faults", func() bool {
		sendUDP(t, client, "2", 10*time.Millisecond)
		if got := r.Status()[0].Backends[0]; got.Health == Down {
			t.Fatalf("the backend is down: %s", got.Reason)
		}
		return testutil.ToFloat64(denied) >= 2*ejectRefused
	})
	sessions := r.Status()[0].Connections
	open()
	if got := sendUDP(t, client, "3", time.Minute); !strings.HasPrefix(got, "b 3") || sessions != 1 {
		t.Errorf("answer %q, and there were %d sessions", got, sessions)
	}
}
