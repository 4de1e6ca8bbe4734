package privilege_test

import (
	"encoding/json"
	"errors"
	"io/fs"
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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/test/support/netns"
)

const childMode = "BOOTLAB_TEST_PRIVILEGE_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		_ = json.NewEncoder(os.Stdout).Encode(map[string]func() report{"drop": child, "keep": keep}[mode]())
		os.Exit(0)
	}
	netns.Main(m)
}

// A report is what a process found out about itself after it dropped its privileges.
type report struct {
	Drop    string
	Threads []map[string]string
	Port80  string
	Raw     string
	Shadow  string
	Back    string
	FDs     string
	Caps    string // of a program that it started
	Home    string
	Admin   string // what an address of an interface needs, outside of Using
	Using   string // the same within
	Within  int    // how many threads have it as effective meanwhile
	After   string

	Dumpable int // PR_GET_DUMPABLE; 0: no core dump, and no debugger of its user
}

// keep keeps the user.
func keep() (r report) {
	r.Drop = text(privilege.Keep(privilege.NetBindService))
	r.Dumpable = dumpable()
	return r
}

func dumpable() int {
	is, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return is
}

// child drops to the user labrat, with threads that were there before and threads that come after.
func child() (r report) {
	threads := &sync.WaitGroup{}
	stop := make(chan struct{})
	defer threads.Wait()
	defer close(stop)
	hold := func() {
		for range 4 {
			started := make(chan struct{})
			threads.Go(func() {
				runtime.LockOSThread()
				close(started)
				<-stop
			})
			<-started
		}
	}
	hold()
	u, err := privilege.Lookup("labrat")
	if err == nil {
		err = u.Drop(privilege.NetBindService, privilege.NetRaw, privilege.NetAdmin)
	}
	r.Drop, r.Dumpable = text(err), dumpable()
	hold()
	r.Threads = statuses()
	l, err := net.Listen("tcp4", "127.0.0.1:80")
	if err == nil {
		err = l.Close()
	}
	r.Port80 = text(err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	r.Raw = text(err)
	_, err = os.ReadFile("/etc/shadow")
	r.Shadow = text(err)
	r.Back = text(syscall.Setuid(0))
	_, err = os.ReadDir("/proc/self/fd")
	r.FDs = text(err)
	out, _ := exec.Command("grep", "CapEff", "/proc/self/status").Output()
	r.Caps = strings.Join(strings.Fields(string(out)), " ")
	add := func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		lo, err := unix.NewIfreq("lo")
		if err == nil {
			lo.SetUint16(unix.IFF_UP)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
		}
		return err
	}
	r.Admin = text(add())
	r.Using = text(privilege.Using(privilege.NetAdmin, func() error {
		for _, thread := range statuses() {
			if thread["CapEff"] != "0000000000002400" {
				r.Within++
			}
		}
		return add()
	}))
	r.After = text(add())
	r.Home = os.Getenv("USER") + " " + os.Getenv("HOME")
	return r
}

func text(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// statuses returns what the kernel says of each thread.
func statuses() (all []map[string]string) {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		m := map[string]string{}
		for line := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(line, ":")
			if slices.Contains([]string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"}, k) {
				m[k] = strings.Join(strings.Fields(v), " ")
			}
		}
		all = append(all, m)
	}
	return all
}

// asChild runs child on a machine that has the user labrat, who is in the group libvirt.
func asChild(t *testing.T) (r report) {
	t.Helper()
	netns.Need(t, "root", "unshare", "mount", "ip")
	dir := t.TempDir()
	account(t, "/etc/passwd", filepath.Join(dir, "passwd"), "labrat:x:7654:7654::/home/labrat:/usr/sbin/nologin\n")
	account(t, "/etc/group", filepath.Join(dir, "group"), "labrat:x:7654:\nlibvirt:x:7655:labrat\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-ec",
		`mount --bind "$1/passwd" /etc/passwd; mount --bind "$1/group" /etc/group; ip link set lo up; exec "$2"`, "sh", dir, self)
	cmd.Env = append(os.Environ(), childMode+"=drop")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

func account(t *testing.T, from, to, line string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, append(b, line...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDropReachesEveryThread(t *testing.T) {
	t.Parallel()
	r := asChild(t)
	if r.Drop != "ok" {
		t.Fatalf("drop: %s", r.Drop)
	}
	const both = "0000000000002400" // CAP_NET_BIND_SERVICE is bit 10, CAP_NET_RAW is bit 13
	const all = "0000000000003400"  // and CAP_NET_ADMIN bit 12, which Using makes effective
	want := map[string]string{
		"Uid": "7654 7654 7654 7654", "Gid": "7654 7654 7654 7654", "Groups": "7654 7655",
		"CapInh": "0000000000000000", "CapPrm": all, "CapEff": both, "CapBnd": all, "CapAmb": "0000000000000000", "NoNewPrivs": "1",
	}
	if len(r.Threads) < 9 {
		t.Errorf("%d threads, want the 8 that were held and the first", len(r.Threads))
	}
	for i, got := range r.Threads {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("thread %d (-want +got)\n%s", i, diff)
		}
	}
	got := r
	got.Threads, got.Drop = nil, ""
	if diff := cmp.Diff(report{
		Port80: "ok", Raw: "ok", FDs: "ok", Shadow: "open /etc/shadow: permission denied", Back: "operation not permitted",
		Caps: "CapEff: 0000000000000000", Home: "labrat /home/labrat",
		Admin: "operation not permitted", Using: "ok", Within: 1, After: "operation not permitted",
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestKeepAllowsNoDump: a process that changes no user is dumpable until it says otherwise.
func TestKeepAllowsNoDump(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childMode+"=keep")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(report{Drop: "ok"}, r); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLookupSaysHowToMakeTheUser(t *testing.T) {
	t.Parallel()
	_, err := privilege.Lookup("no-such-user")
	if err == nil || !strings.Contains(err.Error(), "useradd --system") || !strings.Contains(err.Error(), "nologin no-such-user") || !strings.HasSuffix(err.Error(), `"root" to keep root`) {
		t.Errorf("got %v, want the command", err)
	}
}

func TestDropRefusesRoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	u := &privilege.User{Name: "root"}
	if err := u.Drop(); err == nil || !strings.Contains(err.Error(), "it is root") {
		t.Errorf("got %v", err)
	}
}

// TestAs: what it calls is the user, and the process stays root.
func TestAs(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	u, err := privilege.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() error { _, err := os.ReadFile(secret); return err }
	for range 10 {
		if err := u.As(read); !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("as nobody: %v, want permission denied", err)
		}
		if err := read(); err != nil {
			t.Fatalf("as root, afterwards: %v", err)
		}
	}
	if err := u.As(func() error { return unix.Access(filepath.Dir(secret), unix.W_OK) }); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("access as nobody: %v, want permission denied", err)
	}
}

func TestOwnGivesNothingElseAway(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	outside := filepath.Join(dir, "outside")
	steps := errors.Join(
		os.MkdirAll(filepath.Join(state, "images"), 0o755),
		os.WriteFile(filepath.Join(state, "images", "kernel"), nil, 0o600),
		os.WriteFile(outside, nil, 0o600),
		os.Link(outside, filepath.Join(state, "hard")),
		os.Symlink(outside, filepath.Join(state, "soft")),
		os.Symlink(dir, filepath.Join(state, "folder")),
	)
	if steps != nil {
		t.Fatal(steps)
	}
	u := &privilege.User{Name: "labrat", UID: 7654, GID: 7655}
	if err := u.Own(state, filepath.Join(dir, "run", "bootlab")); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{} // given away?
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		st := info.Sys().(*syscall.Stat_t)
		got[name] = st.Uid == 7654 && st.Gid == 7655
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		".": false, "outside": false, "run": false, "run/bootlab": true,
		"state": true, "state/images": true, "state/images/kernel": true, "state/hard": false, "state/soft": true, "state/folder": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given away (-want +got)\n%s", diff)
	}
}

// TestOwnLeavesAReadOnlyFileSystem: what cannot change its owner because its file system is read-only, as lost+found of a disk that the kernel
// made read-only after an error, is no reason not to start.
func TestOwnLeavesAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "lost+found"), 0o700), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	u := &privilege.User{Name: "labrat", UID: 7654, GID: 7655}
	if err := u.Own(dir); err != nil {
		t.Error(err)
	}
}

// TestOwnSocketLeavesTheNeighbours is about a socket in /run, or in any folder that is not its own.
func TestOwnSocketLeavesTheNeighbours(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	u := &privilege.User{Name: "labrat", UID: 7654, GID: 7655}
	for _, tt := range []struct {
		name      string
		neighbour string
		dir       bool // given away
	}{{"alone", "", true}, {"with others", "other.pid", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			socket := filepath.Join(dir, "admin.sock")
			for _, name := range []string{socket, filepath.Join(dir, tt.neighbour)} {
				if name == dir {
					continue
				}
				if err := os.WriteFile(name, nil, 0o660); err != nil {
					t.Fatal(err)
				}
			}
			if err := u.OwnSocket(socket); err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{dir: tt.dir, socket: true}
			if tt.neighbour != "" {
				want[filepath.Join(dir, tt.neighbour)] = false
			}
			for name, given := range want {
				info, err := os.Lstat(name)
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Sys().(*syscall.Stat_t).Uid == 7654; got != given {
					t.Errorf("%s given away: %v, want %v", name, got, given)
				}
			}
		})
	}
}
