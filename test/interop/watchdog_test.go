package interop

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A serviceManager is the socket that systemd listens on.
type serviceManager struct {
	path string

	mu   sync.Mutex
	said map[string]int
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	m := &serviceManager{path: filepath.Join(dir, "notify"), said: map[string]int{}}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(m.path, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said[string(b[:n])]++
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done; _ = os.RemoveAll(dir) })
	return m
}

func (m *serviceManager) count(message string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said[message]
}

// wrap returns the command that runs a daemon under the manager.
func (m *serviceManager) wrap(watchdog time.Duration) []string {
	return []string{"env", "NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=" + strings.TrimSuffix(watchdog.String(), "s") + "000000"}
}

// frozenState puts the lab's state on a disk of its own, and returns a function that freezes it: writes hang until it is thawed.
func frozenState(t *testing.T, l *labFile) (freeze, thaw func()) {
	t.Helper()
	netns.Need(t, "mkfs.ext4", "mount", "fsfreeze")
	image, state := filepath.Join(l.dir, "disk"), filepath.Join(l.dir, "state")
	netns.Run(t, "truncate", "-s", "16M", image)
	netns.Run(t, "mkfs.ext4", "-q", image)
	netns.Run(t, "mkdir", "-p", state)
	if out, err := exec.Command("mount", "-o", "loop", image, state).CombinedOutput(); err != nil {
		netns.Absent(t, "loop devices", string(out))
	}
	thaw = sync.OnceFunc(func() { _ = exec.Command("fsfreeze", "--unfreeze", state).Run() })
	t.Cleanup(func() { thaw(); _ = exec.Command("umount", "--lazy", state).Run() })
	return func() { netns.Run(t, "fsfreeze", "--freeze", state) }, thaw
}

// TestWatchdog: the daemon serves the watchdog of its service manager while its servers answer, also while the disk of its state
// hangs. What it asks itself is in no log, on no timeline and in no metric of refusals.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.73.1")
	m := newServiceManager(t)
	freeze, thaw := frozenState(t, l)
	d := start(t, l, m.wrap(20*time.Second)...) // a server has five seconds to answer, which a busy machine keeps
	d.until("the watchdog is served", func() bool { return m.count("WATCHDOG=1") >= 3 })
	if n := m.count("READY=1"); n != 1 {
		t.Errorf("ready: %d times", n)
	}
	freeze()
	client := l.seg.NewClient(t, "52:54:00:00:00:10")
	_ = client.Command(t.Context(), "busybox", "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", "/bin/true", "-t", "3", "-T", "1").Run()
	d.logged(`cause="slow disk"`)
	before := m.count("WATCHDOG=1")
	d.until("it is served while the disk hangs", func() bool { return m.count("WATCHDOG=1") >= before+4 })
	thaw()
	for _, never := range []string{"failed its self-test", "tftp_refused", "bootlab-self-test"} {
		if strings.Contains(d.log.String(), never) {
			t.Errorf("the log has %q", never)
		}
	}
	if n := d.metric(`bootlab_tftpd_transfers_total{result="refused"}`); n != 0 {
		t.Errorf("%v refused transfers are counted", n)
	}
}
