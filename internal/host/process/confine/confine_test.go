package confine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/test/support/netns"
)

// childDir is the folder of a process that confines itself and reports what it may still do.
const childDir = "BOOTLAB_TEST_CONFINE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		_ = json.NewEncoder(os.Stdout).Encode(child(dir))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A report is what a confined process found out.
type report struct {
	Confinement confine.Confinement
	Apply       string
	Threads     []string // what the kernel says of each thread
	Tried       map[string]string
	Outside     map[string]bool
}

// child confines itself to the folders below dir, with threads that were there before and threads that come after.
func child(dir string) (r report) {
	hold(4)
	at := func(name string) string { return filepath.Join(dir, name) }
	c, err := confine.Apply(confine.Paths{
		Execute: []string{"/usr", "/lib", "/lib64", "/bin"}, Read: []string{at("read"), "/proc", at("none")}, Write: []string{at("write")},
		Remove: []string{at("remove")}, Devices: []string{os.DevNull},
	})
	r.Apply = text(err)
	if err != nil {
		return r
	}
	r.Confinement = *c
	hold(4)
	r.Threads = threads()
	r.Tried = map[string]string{}
	for name, try := range attempts(at) {
		r.Tried[name] = text(onNewThread(try))
	}
	r.Outside = map[string]bool{}
	for _, name := range []string{"read/file", "write/sub", "secret/file", "read/link", "none", "remove/x"} {
		r.Outside[name] = c.Outside(at(name))
	}
	return r
}

// attempts are what the process tries. Without the confinement, as root, all work or, where that would harm the test, fail otherwise: a
// process that is traced by its parent, or a copy of it, would be waited for for ever.
func attempts(at func(string) string) map[string]func() error {
	open := func(name string, flags int) func() error {
		return func() error {
			f, err := os.OpenFile(at(name), flags, 0o600)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	call := func(nr uintptr, args ...uintptr) func() error {
		args = append(args, make([]uintptr, 6-len(args))...)
		return func() error {
			if _, _, errno := unix.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
				return errno
			}
			return nil
		}
	}
	socketOf := func(family, kind, protocol int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}
	}
	socket := func(family, kind int) func() error { return socketOf(family, kind, 0) }
	onSocket := func(do func(fd int) error) func() error {
		return func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return errors.Join(do(fd), unix.Close(fd))
		}
	}
	ioctl := func(fd int, request uint) error { // of an interface that cannot exist: nothing changes
		none, err := unix.NewIfreq("no/ne")
		if err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, request, none)
	}
	return map[string]func() error{
		"read what may be read":          open("read/file", os.O_RDONLY),
		"write what may be read":         open("read/file", os.O_WRONLY),
		"run what may be read":           exec.Command(at("read/program")).Run,
		"run what may be written":        exec.Command(at("write/program")).Run,
		"read a link out":                open("read/link", os.O_RDONLY),
		"create":                         open("write/new", os.O_CREATE|os.O_RDWR),
		"move to another folder":         func() error { return os.Rename(at("write/sub/file"), at("write/moved")) },
		"remove":                         func() error { return os.Remove(at("write/old")) },
		"remove where one may":           func() error { return os.Remove(at("remove/socket")) },
		"create where one may remove":    open("remove/new", os.O_CREATE|os.O_RDWR),
		"read anything else":             open("secret/file", os.O_RDONLY),
		"list anything else":             func() error { _, err := os.ReadDir(at("secret")); return err },
		"create anywhere else":           open("secret/new", os.O_CREATE|os.O_RDWR),
		"write a device":                 func() error { return os.WriteFile(os.DevNull, []byte("x"), 0) },
		"run a program":                  exec.Command("true").Run,
		"a program reads anything else":  exec.Command("cat", at("secret/file")).Run,
		"a program makes a namespace":    exec.Command("unshare", "--net", "true").Run,
		"listen":                         func() error { l, err := net.Listen("tcp4", "127.0.0.1:0"); return errors.Join(err, l.Close()) },
		"own descriptors":                func() error { _, err := os.ReadDir("/proc/self/fd"); return err },
		"ptrace":                         call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1<<30),
		"mount":                          func() error { return unix.Mount("none", at("write"), "nosuchfs", 0, "") },
		"new namespace":                  call(unix.SYS_UNSHARE, unix.CLONE_NEWUTS),
		"clone into a new namespace":     call(unix.SYS_CLONE, uintptr(unix.CLONE_NEWNS|unix.CLONE_FS|unix.SIGCHLD)),
		"clone3":                         call(unix.SYS_CLONE3),
		"bpf":                            call(unix.SYS_BPF, 999),
		"io_uring":                       call(unix.SYS_IO_URING_SETUP, 1, 0),
		"keys":                           call(unix.SYS_KEYCTL, 0, ^uintptr(1)),
		"kexec":                          call(unix.SYS_KEXEC_LOAD),
		"module":                         call(unix.SYS_DELETE_MODULE),
		"bluetooth socket":               socket(unix.AF_BLUETOOTH, unix.SOCK_RAW),
		"crypto socket":                  socket(unix.AF_ALG, unix.SOCK_SEQPACKET),
		"netlink socket":                 socket(unix.AF_NETLINK, unix.SOCK_RAW),
		"nftables":                       socketOf(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		"interfaces by netlink":          func() error { _, err := net.Interfaces(); return err },
		"an interface by ioctl":          func() error { _, err := net.InterfaceByName("lo"); return err },
		"set an interface by ioctl":      onSocket(func(fd int) error { return ioctl(fd, unix.SIOCSIFFLAGS) }),
		"make a bridge":                  onSocket(func(fd int) error { return ioctl(fd, unix.SIOCBRADDBR) }),
		"read an interface's flags":      onSocket(func(fd int) error { return ioctl(fd, unix.SIOCGIFFLAGS) }),
		"iptables":                       onSocket(func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_IP, 64, "x") }),
		"ip6tables":                      onSocket(func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_IPV6, 64, "x") }),
		"an option of a socket":          onSocket(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TTL, 64) }),
		"UDP socket":                     socket(unix.AF_INET6, unix.SOCK_DGRAM),
		"another convention, as x32 has": call(0x40000000 | unix.SYS_GETPID),
	}
}

func want() map[string]string {
	const ok, denied, refused = "ok", "permission denied", "operation not permitted"
	return map[string]string{
		"read what may be read": ok, "write what may be read": denied, "run what may be read": denied, "run what may be written": denied, "read a link out": denied,
		"create": ok, "move to another folder": ok, "remove": ok, "remove where one may": ok, "create where one may remove": denied,
		"read anything else": denied, "list anything else": denied, "create anywhere else": denied, "write a device": ok,
		"run a program": ok, "a program reads anything else": "exit status 1", "a program makes a namespace": "exit status 1",
		"listen": ok, "own descriptors": ok,
		"ptrace": refused, "mount": refused, "new namespace": refused, "clone into a new namespace": refused, "clone3": "function not implemented",
		"bpf": refused, "io_uring": refused, "keys": refused, "kexec": refused, "module": refused,
		"nftables": "protocol not supported", "interfaces by netlink": ok, "an interface by ioctl": ok, "set an interface by ioctl": refused, "make a bridge": refused,
		"read an interface's flags": "no such device", "iptables": refused, "ip6tables": refused, "an option of a socket": ok,
		"bluetooth socket": "address family not supported by protocol", "crypto socket": "address family not supported by protocol",
		"netlink socket": ok, "UDP socket": ok, "another convention, as x32 has": "function not implemented",
	}
}

// text returns the last part of an error.
func text(err error) string {
	if err == nil {
		return "ok"
	}
	s := err.Error()
	return strings.TrimSpace(s[strings.LastIndex(s, ":")+1:])
}

// onNewThread runs f on a thread that ends with it.
func onNewThread(f func() error) error {
	result := make(chan error)
	go func() { runtime.LockOSThread(); result <- f() }()
	return <-result
}

// hold starts threads that stay.
func hold(n int) {
	var started sync.WaitGroup
	for range n {
		started.Add(1)
		go func() { runtime.LockOSThread(); started.Done(); select {} }()
	}
	started.Wait()
}

// threads returns what the kernel says of each thread, without repetitions.
func threads() (all []string) {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var of []string
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "NoNewPrivs:") || strings.HasPrefix(line, "Seccomp:") {
				of = append(of, strings.Join(strings.Fields(line), " "))
			}
		}
		all = append(all, strings.Join(of, ", "))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestConfinedProcess runs this program as one that confines itself, and compares what it may still do.
func TestConfinedProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	steps := []error{
		os.MkdirAll(filepath.Join(dir, "read"), 0o755), os.MkdirAll(filepath.Join(dir, "write/sub"), 0o755),
		os.MkdirAll(filepath.Join(dir, "secret"), 0o755), os.MkdirAll(filepath.Join(dir, "remove"), 0o755),
		os.Symlink("../secret/file", filepath.Join(dir, "read/link")),
	}
	for _, name := range []string{"read/file", "read/program", "write/program", "write/old", "write/sub/file", "secret/file", "remove/socket", "remove/x"} {
		steps = append(steps, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr, cmd.WaitDelay = os.Stderr, time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		t.Fatal("the confined process hangs: it was refused a call that it cannot do without")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Apply != "ok" {
		t.Fatalf("apply: %s", r.Apply)
	}
	abi, err := ll.LandlockGetABIVersion()
	_, noFilters := os.Stat("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || abi < 2 || noFilters != nil {
		netns.Absent(t, "Landlock 2 and seccomp", fmt.Sprintf("Landlock %d, %v; seccomp %v", abi, err, noFilters))
	}
	if r.Confinement.Files != fmt.Sprintf("Landlock %d", abi) || r.Confinement.Calls != "seccomp" || r.Confinement.Missing() {
		t.Errorf("confined by %q and %q, on a kernel that has Landlock %d and seccomp", r.Confinement.Files, r.Confinement.Calls, abi)
	}
	if diff := cmp.Diff([]string{"NoNewPrivs: 1, Seccomp: 2"}, r.Threads); diff != "" {
		t.Errorf("threads (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want(), r.Tried); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	outside := map[string]bool{"read/file": false, "write/sub": false, "secret/file": true, "read/link": true, "none": false, "remove/x": true}
	if diff := cmp.Diff(outside, r.Outside); diff != "" {
		t.Errorf("outside (-want +got)\n%s", diff)
	}
}

// TestAttemptsWorkUnconfined holds that the confinement is what stops the files' attempts.
func TestAttemptsWorkUnconfined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "secret"), 0o755), os.WriteFile(filepath.Join(dir, "secret/file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	tries := attempts(func(name string) string { return filepath.Join(dir, name) })
	for _, name := range []string{"read anything else", "list anything else", "create anywhere else", "a program reads anything else", "clone3"} {
		err := onNewThread(tries[name])
		if name == "clone3" { // without arguments it is invalid, but there
			if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if confine.Off("for a reason").Outside(filepath.Join(dir, "secret/file")) {
		t.Error("a process that is not confined has files outside")
	}
}
