package daemon_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/faultfs"
	"github.com/bootlab/bootlab/test/support/netns"
)

// withState makes the state folder of the rig, and gives host a something to store.
func (r *rig) withState() (dir string) {
	r.t.Helper()
	dir = filepath.Join(filepath.Dir(r.lab), "state")
	if err := os.Mkdir(dir, 0o750); err != nil {
		r.t.Fatal(err)
	}
	r.write(strings.Replace(r.read(), "hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\nhosts:\n  a: {profile: p, ", 1))
	return dir
}

// onDisk gives the state folder a file system of its own, large enough for no warning.
func (r *rig) onDisk() (dir string) {
	r.t.Helper()
	dir = r.withState()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=80m,mode=0750"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// untilStore waits for a line of /readyz about the store.
func (r *rig) untilStore(addr, want string) {
	r.t.Helper()
	r.until("/readyz says "+want, func() bool { return strings.Contains(r.get("http://"+addr+":9680/readyz"), "store: "+want) })
	degraded := "1"
	if want == "ok\n" {
		degraded = "0"
	}
	r.until("bootlab_store_degraded is "+degraded, func() bool {
		return strings.Contains(r.get("http://"+addr+":9680/metrics"), "\nbootlab_store_degraded "+degraded+"\n")
	})
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a disk that is full shows in /readyz, status, metrics and log, while the daemon serves; and so
// does that it is not any more, without a restart.
func TestFullDisk(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.62.0.1"
	r := newRig(t, addr)
	dir := r.onDisk()
	r.start()
	r.untilStore(addr, "ok\n")
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Fatal(err)
	}
	if s := r.status().Store; s.Folder != dir || s.Synced.IsZero() || s.FreeBytes == 0 || s.FreeInodes == 0 || len(s.Problems) > 0 {
		t.Errorf("status: %+v", s)
	}

	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	size := int64(80 << 20)
	for step := size / 2; step >= 4096; step /= 2 { // fallocate takes all or nothing
		for at, _ := ballast.Seek(0, 2); syscall.Fallocate(int(ballast.Fd()), 0, at, step) == nil; at, _ = ballast.Seek(0, 2) {
		}
	}
	r.untilStore(addr, "degraded: little free space")
	r.until("a commit fails", func() bool {
		_, err := r.client.Install(t.Context(), "a", api.CycleLater)
		return err != nil
	})
	r.untilStore(addr, "degraded: no space left on device; little free space")
	if s := r.status().Store; len(s.Problems) < 2 || !strings.Contains(s.Problems[0], "free space on the file system of "+dir) || s.Took <= 0 {
		t.Errorf("status: %+v", s)
	}
	r.until("the log says so", func() bool { return strings.Contains(r.log.String(), `degraded" cause="no space left on device"`) })
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	ballast.Close()
	r.untilStore(addr, "ok\n")
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Error(err)
	}

	for _, cause := range []string{"no space left on device", "little free space"} {
		r.until("the log says that it ended: "+cause, func() bool {
			return strings.Contains(r.log.String(), `msg="state store: a problem has ended" cause="`+cause+`"`)
		})
		if n := strings.Count(r.log.String(), `msg="state store is degraded" cause="`+cause+`"`); n != 1 {
			t.Errorf("the log says %d times that there is %s, want once", n, cause)
		}
	}
}

// TestFailingDisk: a disk that fails, is slow or hangs shows in /readyz, status and metrics while the daemon serves, and so does that it
// works again. Nothing that was acknowledged is lost.
func TestFailingDisk(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.59.0.1"
	r := newRig(t, addr)
	dir := r.withState()
	disk := faultfs.Mount(t, dir)
	r.start()
	arm := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // some syncs of a disk that does not respond
		defer cancel()
		_, err := r.client.Install(ctx, "a", api.CycleLater)
		return err
	}
	for _, tt := range []struct {
		fault func(faultfs.Op, int64, int) syscall.Errno
		want  string
	}{
		{failing(faultfs.Sync, syscall.EIO, 0), "degraded: input/output error"},
		{failing(faultfs.Write, syscall.EIO, 0), "degraded: input/output error"},
		{failing(faultfs.Write, syscall.EROFS, 0), "degraded: read-only file system"},
		{failing(faultfs.Sync, 0, 1500*time.Millisecond), "degraded: slow disk"},
		{failing(faultfs.Sync, 0, 7*time.Second), "degraded: disk does not respond"},
	} {
		r.untilStore(addr, "ok\n")
		if err := arm(); err != nil {
			t.Fatal(err)
		}
		disk.Fail(tt.fault)
		outcome := make(chan error, 1)
		go func() { outcome <- arm() }()
		r.untilStore(addr, tt.want)
		if s := r.status(); len(s.Store.Problems) == 0 || !s.Ready() {
			t.Errorf("%s: status %+v", tt.want, s)
		}
		if err := <-outcome; (err == nil) != (strings.Contains(tt.want, "slow")) {
			t.Errorf("%s: a commit: %v", tt.want, err)
		}
		disk.Fail(nil)
		if strings.Contains(tt.want, "slow") {
			r.until("it is fast again", func() bool { return arm() == nil && !strings.Contains(r.get("http://"+addr+":9680/readyz"), "slow") })
		}
	}
	r.untilStore(addr, "ok\n")
	if err := arm(); err != nil {
		t.Error(err)
	}
}

// TestUnusableState: a state folder that cannot be used ends the start at once, with the file, the cause and what to do.
func TestUnusableState(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.126.4.1")
	dir := filepath.Join(filepath.Dir(r.lab), "state")
	file := filepath.Join(dir, "state.db")
	mount := func(options string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, options) }
	tests := []struct {
		name string
		make func() error
		want []string
	}{
		{"no inodes", func() error { return mount("size=1m,nr_inodes=1") }, []string{file, "no space left on device: free space and inodes"}},
		{"read-only", func() error { return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "") }, []string{file, "read-only file system: the first start creates it"}},
		{"endless device", func() error { return os.Symlink("/dev/zero", file) }, []string{file, "it is no regular file"}},
		{"pipe", func() error { return unix.Mkfifo(file, 0o600) }, []string{file, "it is no regular file"}},
		{"folder", func() error { return os.Mkdir(file, 0o700) }, []string{file, "is a directory"}},
		{"a file as folder", func() error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) }, []string{"appliance.state: ", dir, "want a folder"}},
		{"dangling link", func() error { return errors.Join(os.Remove(dir), os.Symlink("/nowhere/x", dir)) }, []string{"appliance.state: ", dir, "want a folder"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.Mkdir(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH); _ = os.RemoveAll(dir) }()
			if err := tt.make(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := daemon.Run(ctx, daemon.Config{Lab: r.lab, Version: "test", Log: slog.New(slog.DiscardHandler)})
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the start ended with: %v, want %q", err, want)
				}
			}
		})
	}
}

// TestHungDisk: while nothing on the disk of the state comes back, as of a network file system whose server is gone, the daemon says so,
// and follows the lab file. That a backend became healthy, a dynamic update of DNS and the serial of a zone wait for the disk; nobody waits
// for these.
func TestHungDisk(t *testing.T) {
	netns.Need(t, "root", "ip", "nsupdate")
	const addr = "10.126.1.1"
	r := newRig(t, addr)
	disk := faultfs.Mount(t, r.withState())
	r.write(r.read() + "balancers:\n  web: {listen: \"" + addr + ":80\", backends: [\"" + addr + ":81\"], check: {kind: tcp, interval: 100ms, timeout: 5s, rise: 1, fall: 1}}\n")
	const secret = "pRP5FapFoJ95JEL06sv4PQ=="
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.lab), "ed.key"), []byte("key \"ed\" {\n\talgorithm hmac-sha256;\n\tsecret \""+secret+"\";\n};\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(r.read() + "dns:\n  keys: {ed: {secret_file: ed.key}}\n  zones: {dyn.example: {update: [key ed]}}\n")
	update := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "nsupdate", "-v", "-t", "60", "-y", "hmac-sha256:ed:"+secret)
		cmd.Stdin = strings.NewReader("server " + addr + "\nzone dyn.example\nupdate add " + name + ".dyn.example. 60 A 10.126.1.9\nsend\n")
		return cmd
	}
	r.start()
	if out, err := update("before").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	hung := make(chan struct{})
	release := sync.OnceFunc(func() { disk.Fail(nil); close(hung) })
	t.Cleanup(release) // before the daemon is stopped
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno { <-hung; return 0 })
	l, err := net.Listen("tcp", addr+":81")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waiting := update("meanwhile")
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	status := func() (s api.Status) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s, err := r.client.Status(ctx)
		if err != nil {
			t.Fatalf("status on a disk that hangs: %v", err)
		}
		return s
	}
	r.until("the backend is healthy", func() bool { b := status().Balancers; return len(b) == 1 && b[0].Up == 1 })
	r.until("the hang is shown", func() bool {
		s := status()
		return slices.Contains(s.Store.Causes, "disk does not respond") && s.Ready()
	})
	r.write(strings.Replace(r.read(), "hosts:\n", "hosts:\n  fresh: {mac: \"52:54:00:12:60:01\", ip: 10.126.1.77}\n", 1))
	r.until("the lab is reloaded", func() bool { return status().Generation == 2 })
	if p, err := r.client.Plan(t.Context(), "fresh", api.Hidden); err != nil || !strings.Contains(p, "10.126.1.77") {
		t.Errorf("plan of the new host: %v\n%s", err, p)
	}
	release()
	if err := waiting.Wait(); err != nil {
		t.Errorf("the update that waited for the disk: %v", err)
	}
	r.untilStore(addr, "ok\n")
}

// TestHungDiskChanges: while the disk of the state hangs, an admin's changes are refused before it responds again, at once if that is known.
// What was refused is not made later; that may be of a change only that the disk has not taken when it hung, and the answer says so.
func TestHungDiskChanges(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.126.5.1"
	r := newRig(t, addr)
	disk := faultfs.Mount(t, r.withState())
	r.write(r.read() + "balancers:\n  web: {listen: \"" + addr + ":80\", backends: [\"" + addr + ":81\"]}\n")
	r.start()
	leased := netip.MustParseAddr(addr + "1")
	lease := api.Lease{IP: leased, MAC: lab.MAC{0x52, 0x54, 0, 0, 0, 1}, Since: time.Now(), Never: true}
	if done, err := r.client.ImportLeases(t.Context(), []api.Lease{lease}, api.KeepLeases, api.DoImport); err != nil || done.Imported != 1 {
		t.Fatalf("import: %+v, %v", done, err)
	}
	token, err := r.client.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	backend := func(ctx context.Context, c api.BackendChange) error {
		_, err := r.client.Backend(ctx, "web", addr+":81", c)
		return err
	}
	drain := func(ctx context.Context) error { return backend(ctx, api.BackendChange{Action: api.BackendDrain}) }
	changes := map[string]func(context.Context) error{
		"drain": drain,
		"weight": func(ctx context.Context) error {
			return backend(ctx, api.BackendChange{Action: api.BackendWeight, Weight: 7})
		},
		"arm":  func(ctx context.Context) error { _, err := r.client.Install(ctx, "a", api.CycleLater); return err },
		"done": func(ctx context.Context) error { _, err := r.client.MarkInstalled(ctx, "a"); return err },
		"release": func(ctx context.Context) error {
			_, err := r.client.ReleaseLease(ctx, leased)
			return err
		},
		"import": func(ctx context.Context) error {
			_, err := r.client.ImportLeases(ctx, nil, api.KeepLeases, api.DoImport)
			return err
		},
		"delete": func(ctx context.Context) error { _, err := r.client.DeleteDNSUpdate(ctx, "x.example", ""); return err },
		"accept": func(ctx context.Context) error { _, err := r.client.AcceptState(ctx, ""); return err },
		"rotate": func(ctx context.Context) error { _, err := r.client.RotateToken(ctx); return err },
	}
	refused := func(name, want string, change func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var e *api.Error
		if err := change(ctx); !errors.As(err, &e) || e.Status != http.StatusServiceUnavailable || !strings.Contains(e.Message, want) || !strings.Contains(e.Hint, "check the disk") {
			t.Errorf("%s on a disk that hangs: %v, want %q", name, err, want)
		}
	}
	hang := func(from int64) (release func()) {
		hung := make(chan struct{})
		release = sync.OnceFunc(func() { disk.Fail(nil); close(hung) })
		t.Cleanup(release) // before the daemon is stopped
		disk.Fail(func(op faultfs.Op, at int64, _ int) syscall.Errno {
			if op == faultfs.Write && at >= from {
				<-hung
			}
			return 0
		})
		return release
	}
	drained := func() bool {
		bs, err := r.client.Balancers(t.Context())
		return err == nil && bs[0].Backends[0].State.Drained()
	}

	release := hang(0)
	var all sync.WaitGroup
	for name, change := range changes {
		all.Go(func() { refused(name, "nothing was changed", change) })
	}
	all.Wait()
	r.untilStore(addr, "degraded: disk does not respond")
	for name, change := range changes {
		refused(name+", known", "nothing was changed", change)
	}
	release()
	r.until("the disk responds", func() bool { return !slices.Contains(r.status().Store.Causes, "disk does not respond") })
	if err := r.stop(); err != nil { // which waits for all that was to be stored
		t.Fatal(err)
	}
	r.start()
	bs, err := r.client.Balancers(t.Context())
	if err != nil || bs[0].Backends[0].State.Drained() || bs[0].Backends[0].Weight != 1 {
		t.Errorf("backends afterwards: %+v, %v", bs, err)
	}
	if hosts, err := r.client.Hosts(t.Context()); err != nil || hosts[0].Install != "armed" {
		t.Errorf("hosts afterwards: %+v, %v", hosts, err)
	}
	if ls, err := r.client.Leases(t.Context()); err != nil || len(ls) != 1 {
		t.Errorf("leases afterwards: %+v, %v", ls, err)
	}
	if now, err := r.client.Token(t.Context()); err != nil || now != token {
		t.Errorf("another token afterwards: %v", err)
	}

	release = hang(8192) // records, not marks: the disk answers, and hangs then
	refused("drain, under way", "may still be made", drain)
	release()
	r.until("the change is made", drained)
}

// TestHungDiskClusters: while the disk of the state hangs, clusters are watched: one that is being brought up becomes ready. Another one
// is not brought up, and the admin gets the reason: that a machine was switched on must be known after a restart.
func TestHungDiskClusters(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr, member = "10.126.2.1", "10.126.2.12"
	r := newRig(t, addr)
	netns.Run(t, "ip", "addr", "add", member+"/24", "dev", r.bridge())
	disk := faultfs.Mount(t, r.withState())
	lab := r.read() + "clusters:\n  prod: {kind: kubernetes, address: 10.126.2.20}\n  test: {kind: kubernetes, address: 10.126.2.30}\n"
	lab = strings.Replace(lab, "ip: "+member+"}", "ip: "+member+", cluster: prod, role: control-plane}", 1)
	r.write(strings.Replace(lab, "ip: 10.126.2.13}", "ip: 10.126.2.13, cluster: test, role: control-plane}", 1))
	r.start()
	if _, err := r.client.ClusterUp(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	hung := make(chan struct{})
	release := sync.OnceFunc(func() { disk.Fail(nil); close(hung) })
	t.Cleanup(release) // before the daemon is stopped
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno { <-hung; return 0 })
	l, err := net.Listen("tcp", member+":6443")
	if err != nil {
		t.Fatal(err)
	}
	healthy := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: healthy}}
	server.StartTLS()
	defer server.Close()
	r.until("the cluster is ready", func() bool { return strings.Contains(r.log.String(), "cluster_ready") })
	if err := r.bringUp("test"); err == nil || !strings.Contains(err.Error(), "disk does not respond") {
		t.Errorf("a cluster brought up on a disk that hangs: %v", err)
	}
	release()
	r.until("the other cluster is brought up", func() bool { return r.bringUp("test") == nil })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.start()
	clusters, err := r.client.Clusters(t.Context())
	if err != nil || len(clusters) != 2 || !clusters[0].Up.IsZero() || clusters[1].Up.IsZero() {
		t.Errorf("after a restart: %+v, %v", clusters, err)
	}
	if n := strings.Count(r.log.String(), "cluster_ready"); n != 1 {
		t.Errorf("the cluster became ready %d times", n)
	}
}

// bringUp brings a cluster up, and gives up after a time that no answer needs.
func (r *rig) bringUp(cluster string) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	_, err := r.client.ClusterUp(ctx, cluster)
	return err
}

// failing returns a fault of one operation: an error, or a delay.
func failing(which faultfs.Op, errno syscall.Errno, delay time.Duration) func(faultfs.Op, int64, int) syscall.Errno {
	return func(op faultfs.Op, _ int64, _ int) syscall.Errno {
		if op != which {
			return 0
		}
		time.Sleep(delay)
		return errno
	}
}

// TestReadOnlyDiskAtStart: the daemon starts on a disk that is read-only, says so, and stores again when it is not.
func TestReadOnlyDiskAtStart(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.61.0.1"
	r := newRig(t, addr)
	dir := r.onDisk()
	r.start()
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	remount(t, dir, unix.MS_RDONLY)
	r.start()
	r.untilStore(addr, "degraded: read-only file system")
	if hosts, err := r.client.Hosts(t.Context()); err != nil || hosts[0].Install != "armed" {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
	remount(t, dir, 0)
	r.untilStore(addr, "ok\n")
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Error(err)
	}
}

// TestBrokenFileSystemAtStart: the kernel made the file system of the state read-only after an error, and so it opens files for writing. The
// daemon starts with the state that it can read.
func TestBrokenFileSystemAtStart(t *testing.T) {
	netns.Need(t, "root", "ip", "mkfs.ext4", "mount")
	const addr = "10.61.2.1"
	r := newRig(t, addr)
	image, dir := filepath.Join(t.TempDir(), "disk"), r.withState()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 160<<20)); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mkfs.ext4", "-q", "-F", image)
	netns.Run(t, "mount", "-o", "loop,errors=remount-ro", image, dir)
	t.Cleanup(func() { netns.Run(t, "umount", dir) })
	r.start()
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mount", "-o", "remount,abort", dir)
	r.fails = "close state file " // its last events are lost
	r.start()
	r.untilStore(addr, "degraded: read-only file system")
	if hosts, err := r.client.Hosts(t.Context()); err != nil || hosts[0].Install != "armed" {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
}

// TestReadOnlyFolder: the state folder becomes read-only while the daemon runs and has nothing to store, and writable again, as by mounts over
// it: that shows without a write.
func TestReadOnlyFolder(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.61.1.1"
	r := newRig(t, addr)
	dir := r.onDisk()
	r.start()
	r.untilStore(addr, "ok\n")
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	remount(t, dir, unix.MS_BIND|unix.MS_RDONLY)
	r.untilStore(addr, "degraded: read-only file system")
	if s := r.status().Store; len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "the file system of "+dir+" is read-only: the kernel") {
		t.Errorf("status: %+v", s)
	}
	const cause = ` cause="read-only file system"`
	r.until("the log says so", func() bool { return strings.Contains(r.log.String(), "degraded\""+cause) }) // it looks once a second
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	r.untilStore(addr, "ok\n")
	if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
		t.Error(err)
	}
	r.until("the log says that it ended", func() bool { return strings.Contains(r.log.String(), "a problem has ended\""+cause) })
	if n := strings.Count(r.log.String(), "degraded\""+cause); n != 1 {
		t.Errorf("the log says it %d times, want once", n)
	}
}

// TestDamagedStateFile: the daemon starts with a damaged state file, and lists what is lost in /readyz, status, metrics and log.
func TestDamagedStateFile(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.60.0.1"
	r := newRig(t, addr)
	dir := r.onDisk()
	r.start()
	for range 10 {
		if _, err := r.client.Install(t.Context(), "a", api.CycleLater); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[8192+100:], "damage")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.untilStore(addr, "degraded: stored changes were lost")
	if s := r.status().Store; len(s.Problems) == 0 || !strings.Contains(s.Problems[0], "1 change is lost") {
		t.Errorf("status: %+v", s)
	}
	if m := r.get("http://" + addr + ":9680/metrics"); !strings.Contains(m, "\nbootlab_store_losses 1\n") {
		t.Error("bootlab_store_losses is not 1")
	}
	r.until("the log names the loss", func() bool { return strings.Contains(r.log.String(), "1 change is lost") })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.untilStore(addr, "degraded: stored changes were lost")

	kept, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if err := os.Remove(kept[0]); err != nil { // to tidy up accepts nothing
		t.Fatal(err)
	}
	r.untilStore(addr, "degraded: stored changes were lost")
	if _, err := r.client.AcceptState(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	r.untilStore(addr, "ok\n")
}
