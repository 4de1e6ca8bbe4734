package libvirtd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Pool is the name of the storage pool that every Daemon has; its volumes are files in Daemon.Images.
const Pool = "default"

// readyTimeout is how long libvirtd may take to answer. It first probes every emulator.
const readyTimeout = 3 * time.Minute

const pathLetters = "/._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// A Config says how to run a daemon.
type Config struct {
	// Dir is an existing, empty folder for configuration, state, sockets, volumes and logs. Its path has at most 80 bytes,
	// of letters, digits and "/._-". The caller removes it after Stop.
	Dir string
	// Group may connect, in addition to root. Empty: only root. Access to libvirt is equivalent to root.
	Group string
	// VNCPort is the first port of consoles; 0: 5900. Two daemons in one network namespace need their own, from 5900 on.
	VNCPort int
	// TCP lets it listen on a port of loopback too, where anybody may connect.
	TCP bool
}

// A Daemon is a running libvirtd.
type Daemon struct {
	URI    string // for libvirt clients on this machine
	TCP    string // the same by TCP; empty without Config.TCP
	Port   string // of TCP
	Images string // folder of the storage pool "default"
	Log    string // file that libvirtd's warnings and errors go to

	cmd    *exec.Cmd
	output bytes.Buffer // of the init script and libvirtd, readable once done is closed
	done   chan struct{}
}

// Needs returns what Start needs, for netns.Need.
func Needs() []string {
	return []string{"root", "sh", "mount", "libvirtd", "virsh", "qemu-system-x86_64", "qemu-img"}
}

// Start runs libvirtd and returns when it answers. The daemon and all its virtual machines end with Stop, with ctx, or
// with the calling process, whichever comes first.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("libvirtd: %w", err)
	}
	if err := checkPath(dir); err != nil {
		return nil, err
	}
	port := freePort(cfg)
	if err := writeFiles(dir, port, cfg); err != nil {
		return nil, fmt.Errorf("libvirtd: %w", err)
	}
	d := &Daemon{
		URI:    "qemu+unix:///system?socket=" + filepath.Join(dir, "run", "libvirt-sock"),
		Images: filepath.Join(dir, "images"),
		Log:    filepath.Join(dir, "log", "libvirtd.log"),
		Port:   port,
		done:   make(chan struct{}),
	}
	if port != "" {
		d.TCP = "qemu+tcp://127.0.0.1:" + port + "/system"
	}
	if err := d.run(ctx, dir); err != nil {
		return nil, fmt.Errorf("libvirtd: run libvirtd: %w", err)
	}
	if err := d.waitReady(ctx); err != nil {
		_ = d.Stop()
		return nil, fmt.Errorf("libvirtd: libvirtd does not answer: %w\n%s%s", err, d.output.Bytes(), tail(d.Log))
	}
	return d, nil
}

// ports counts the ports that were given away.
var ports atomic.Uint32

// freePort returns a port of loopback below those that the kernel gives to others; empty: libvirtd listens on none.
func freePort(cfg Config) string {
	if !cfg.TCP {
		return ""
	}
	return strconv.Itoa(16508 + int(ports.Add(1)))
}

// checkPath checks that the path is short enough for socket names, and needs no quotes in log_outputs and no escapes in a
// URI.
func checkPath(dir string) error {
	if len(dir) > 80 {
		return fmt.Errorf("libvirtd: folder %s is longer than 80 bytes, too long for the sockets in it", dir)
	}
	if bad := strings.Trim(dir, pathLetters); bad != "" {
		return fmt.Errorf("libvirtd: folder %q: want only letters, digits and /._- in its path", dir)
	}
	return nil
}

// Stop ends libvirtd and all its virtual machines and waits for them. It may be called more than once.
func (d *Daemon) Stop() error {
	// Killing the first process of a PID namespace kills every process in it.
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("libvirtd: stop libvirtd: %w", err)
	}
	<-d.done
	return nil
}

// Freeze stops libvirtd as a machine that hangs does: it accepts connections and answers none. Its virtual machines go on.
func (d *Daemon) Freeze() error { return d.signal(syscall.SIGSTOP) }

// Thaw lets a frozen libvirtd go on.
func (d *Daemon) Thaw() error { return d.signal(syscall.SIGCONT) }

// signal sends a signal to libvirtd, which is a child of the init script.
func (d *Daemon) signal(sig syscall.Signal) error {
	script := d.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", script))
	if err != nil {
		return fmt.Errorf("libvirtd: %w", err)
	}
	for _, child := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(child)
		if err != nil {
			return fmt.Errorf("libvirtd: %w", err)
		}
		if name, err := os.ReadFile("/proc/" + child + "/comm"); err == nil && string(name) == "libvirtd\n" {
			return syscall.Kill(pid, sig)
		}
	}
	return errors.New("libvirtd: it does not run")
}

// run starts initScript as the first process of its own PID and mount namespaces.
func (d *Daemon) run(ctx context.Context, dir string) error {
	d.cmd = exec.CommandContext(ctx, "sh", "-c", initScript, "libvirtd", dir, map[bool]string{true: "--listen"}[d.Port != ""])
	d.cmd.Stdout, d.cmd.Stderr = &d.output, &d.output
	d.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	d.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // killed by Stop
	}()
	return nil
}

// waitReady lists the machines until that succeeds. A connection is not enough: libvirtd listens before its drivers have
// started, and exits if one of them fails.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := exec.CommandContext(ctx, "virsh", "--connect", d.URI, "list", "--name").CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.done:
			return errors.New("it exited")
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), bytes.TrimSpace(out))
		}
	}
}

// tail returns the end of a log, for an error message.
func tail(file string) []byte {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return b[max(0, len(b)-2000):]
}
