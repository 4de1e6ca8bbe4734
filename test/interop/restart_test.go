package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestRestartRefusesNobody restarts the daemon under a systemd of its own, the second time with another binary, while clients
// connect to a balancer. None is refused or reset, as none is by a HAProxy that reloads meanwhile. /readyz says that it drains.
func TestRestartRefusesNobody(t *testing.T) {
	netns.Need(t, "root", "unshare", "nsenter", "/lib/systemd/systemd", "systemctl", "haproxy")
	l := newLab(t, "10.96.9")
	l.balancers = "  lb: {listen: \"NET.1:7443\", backends: [\"NET.1:7001\"], check: {kind: none}}\n"
	l.write()
	serveLines(t, l.addr()+":7001")
	binary := filepath.Join(l.dir, "bootlab")
	installBinary(t, binary)
	sd := startSystemd(t, l.dir, fmt.Sprintf(`[Unit]
DefaultDependencies=no
[Service]
Type=notify
ExecStart=%s serve --lab %s
FileDescriptorStoreMax=512
TimeoutStopSec=60s
StandardError=append:%s
`, binary, l.path(), filepath.Join(l.dir, "log")))
	t.Cleanup(func() {
		if log, _ := os.ReadFile(filepath.Join(l.dir, "log")); t.Failed() {
			t.Logf("log of the daemon:\n%s", tail(string(log)))
		}
	})
	lb, peer := l.addr()+":7443", l.addr()+":7444"
	cfg := filepath.Join(l.dir, "haproxy.cfg")
	l.file("haproxy.cfg", fmt.Appendf(nil, "global\n  stats socket %s/stats expose-fd listeners\ndefaults\n  timeout connect 20s\n  timeout client 60s\n  timeout server 60s\n"+
		"listen l\n  bind %s\n  server s %s:7001\n", l.dir, peer, l.addr()))
	hap := exec.Command("haproxy", "-W", "-f", cfg)
	if err := hap.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hap.Process.Signal(syscall.SIGTERM); _ = hap.Wait() })
	for _, at := range []string{lb, peer} {
		netns.WaitFor(t, at+" answers", func() bool { return sendLine(at) == nil })
	}

	var ours, peers load
	ctx, stop := context.WithCancel(t.Context())
	ours.run(ctx, lb)
	peers.run(ctx, peer)
	for i := range 2 {
		long, err := net.Dial("tcp", lb)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			installBinary(t, binary)
		}
		before := sd.mainPID(t)
		if n := sd.systemctl(t, "show", "--property=NFileDescriptorStore", "bootlab"); n != "NFileDescriptorStore=1\n" {
			t.Errorf("systemd keeps %s, want the socket of the balancer", n)
		}
		restarted := make(chan struct{})
		go func() {
			defer close(restarted)
			sd.systemctl(t, "restart", "bootlab")
		}()
		netns.WaitFor(t, "/readyz says draining", func() bool {
			resp, err := http.Get("http://" + l.addr() + ":9680/readyz")
			if err != nil {
				return false
			}
			defer func() { _ = resp.Body.Close() }()
			body, _ := io.ReadAll(resp.Body)
			return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), "lbproxy: partly serving: draining")
		})
		_ = hap.Process.Signal(syscall.SIGUSR2)
		time.Sleep(time.Second) // of load
		_ = long.Close()
		<-restarted
		if sd.mainPID(t) == before {
			t.Error("the daemon was not restarted")
		}
	}
	stop()
	ours.tasks.Wait()
	peers.tasks.Wait()
	t.Logf("%s; HAProxy: %s", &ours, &peers)
	if ours.failed.Load() > 0 || ours.made.Load() == 0 {
		t.Errorf("two restarts: %s; HAProxy: %s", &ours, &peers)
	}
}

// installBinary puts another copy of the binary in place, as an upgrade does.
func installBinary(t *testing.T, path string) {
	t.Helper()
	body, err := os.ReadFile(os.Getenv(binaryVar))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serveLines answers each line that it receives.
func serveLines(t *testing.T, at string) {
	t.Helper()
	s, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// sendLine sends and reads a line on a new connection.
func sendLine(at string) error {
	c, err := net.DialTimeout("tcp", at, patience)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "x\n"); err != nil {
		return err
	}
	_, err = bufio.NewReader(c).ReadString('\n')
	return err
}

// A load connects a hundred times a second.
type load struct {
	tasks        sync.WaitGroup
	made, failed atomic.Int64
	first        atomic.Pointer[error]
}

func (l *load) run(ctx context.Context, at string) {
	l.tasks.Go(func() {
		for ctx.Err() == nil {
			l.tasks.Go(func() {
				err := sendLine(at)
				l.made.Add(1)
				if err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, &err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func (l *load) String() string {
	text := fmt.Sprintf("%d of %d failed", l.failed.Load(), l.made.Load())
	if err := l.first.Load(); err != nil {
		text += ", the first: " + (*err).Error()
	}
	return text
}

// A systemd is the first process of namespaces of its own; its network is the test's.
type systemd struct{ pid string }

// startSystemd starts one whose only unit is bootlab.service.
func startSystemd(t *testing.T, dir, unit string) *systemd {
	t.Helper()
	units := filepath.Join(dir, "units")
	if err := os.Mkdir(units, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(units, "bootlab.service"), []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount --make-rprivate / && mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t cgroup2 none /sys/fs/cgroup &&
		mount -t tmpfs none /run && mount --bind ` + units + ` /etc/systemd/system &&
		exec env container=docker /lib/systemd/systemd --system --unit=bootlab.service --log-target=console --show-status=no`
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--cgroup", "--uts", "--ipc", "sh", "-c", script)
	log := &output{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sd := &systemd{}
	t.Cleanup(func() {
		if sd.pid != "" {
			_ = exec.Command("kill", "-KILL", sd.pid).Run() // the namespace ends with its first process
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of systemd:\n%s", tail(log.String()))
		}
	})
	netns.WaitFor(t, "bootlab.service active", func() bool {
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if sd.pid = strings.TrimSpace(string(child)); sd.pid == "" {
			return false
		}
		out, _ := sd.command("is-active", "bootlab").Output()
		return strings.TrimSpace(string(out)) == "active"
	})
	return sd
}

func (s *systemd) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", s.pid, "--mount", "--pid", "systemctl"}, args...)...)
}

func (s *systemd) systemctl(t *testing.T, args ...string) string {
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *systemd) mainPID(t *testing.T) string {
	return s.systemctl(t, "show", "--property=MainPID", "bootlab")
}
