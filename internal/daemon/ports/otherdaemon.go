package ports

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/socket/portowner"
)

// DefaultLab is the lab file of a daemon that is started without --lab.
const DefaultLab = "/etc/bootlab/lab.yaml"

// adminSocketKey is the key of the socket of the command line.
const adminSocketKey = "appliance.admin_socket"

// A listenError says why a key of the lab file cannot be listened on.
type listenError struct {
	key           string
	network, addr string    // of a port; empty: the admin socket
	pid           int       // of the daemon that answers on the admin socket; 0: not known
	stopping      time.Time // since when that daemon stops; zero: it does not, or that is not known
	err           error
}

// Error names the process that holds the port and what to do.
func (e *listenError) Error() string {
	if e.network != "" {
		return e.key + ": " + portowner.Explain(e.err, e.network, e.addr, e.key).Error()
	}
	return e.key + ": " + e.err.Error()
}

// Unwrap returns the error of the listen call.
func (e *listenError) Unwrap() error { return e.err }

// listenErrors joins errors of listen calls: one for each other bootlab, one for what needs root, and one for ports of programs that this user
// may not see. lab is the lab file of this daemon.
func listenErrors(all []*listenError, lab string) error {
	var errs []error
	var forbidden, unknown []*listenError
	held := map[int][]*listenError{}
	for _, e := range all {
		pid, known := e.bootlab(lab)
		switch {
		case pid != 0:
			held[pid] = append(held[pid], e)
		case e.network != "" && errors.Is(e.err, fs.ErrPermission):
			forbidden = append(forbidden, e)
		case !known:
			unknown = append(unknown, e)
		default:
			errs = append(errs, e)
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(held)) {
		errs = append(errs, newAnother(pid, lab, held[pid]))
	}
	if len(forbidden) > 0 {
		errs = append(errs, fmt.Errorf("%s: %w: start it as root, or with CAP_NET_BIND_SERVICE, or take ports above 1023", keysOf(forbidden), forbidden[0].err))
	}
	switch n := len(unknown); {
	case n == 1:
		errs = append(errs, unknown[0])
	case n > 1:
		errs = append(errs, fmt.Errorf("%w, as are %d other addresses of %s", unknown[0], n-1, keysOf(unknown)))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// keysOf returns the keys of errors, each once.
func keysOf(errs []*listenError) string {
	var keys []string
	for _, e := range errs {
		if !slices.Contains(keys, e.key) {
			keys = append(keys, e.key)
		}
	}
	return strings.Join(keys, ", ")
}

// bootlab returns the PID of the other bootlab that listens; 0: none, as far as this user may see. known: nothing hides who listens.
func (e *listenError) bootlab(lab string) (pid int, known bool) {
	if e.pid != 0 || !errors.Is(e.err, syscall.EADDRINUSE) {
		return e.pid, true
	}
	if e.network != "" {
		if holders := portowner.Holders(e.network, e.addr); len(holders) > 0 {
			if first := holders[0].PID; first != os.Getpid() && command(first) == command(os.Getpid()) {
				return first, true
			}
			return 0, true
		}
	}
	return serverOf(lab), e.network == ""
}

// serverOf returns the PID of another daemon that serves the lab file, which every user may see; 0: none.
func serverOf(lab string) int {
	own := command(os.Getpid())
	files, _ := filepath.Glob("/proc/[0-9]*/comm") // the only error is a bad pattern
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() || command(pid) != own || !slices.Contains(arguments(pid), "serve") {
			continue
		}
		if sameLab(labOf(pid), lab) {
			return pid
		}
	}
	return 0
}

// sameLab reports whether the lab file of another daemon is this one. Theirs is relative if only root sees the folder of that process.
func sameLab(theirs, lab string) bool {
	return theirs == absolute(lab) || !filepath.IsAbs(theirs) && filepath.Base(theirs) == filepath.Base(lab)
}

// An another is the error of a start beside another daemon.
type another struct {
	pid      int
	own      string    // the lab file of this start
	lab      string    // that of the other daemon; empty: it is ending, and does not show it any more
	keys     string    // where it listens
	stopping time.Time // since when it stops, if it serves the same lab; zero: it does not
}

func newAnother(pid int, lab string, errs []*listenError) *another {
	e := &another{pid: pid, own: lab, keys: keysOf(errs)}
	if arguments(pid)[0] == "" { // the kernel has taken its memory back already
		e.stopping = time.Now()
		return e
	}
	e.lab = labOf(pid)
	for _, one := range errs {
		if !one.stopping.IsZero() && sameLab(e.lab, lab) {
			e.stopping = one.stopping
		}
	}
	return e
}

// Error names the other daemon and says what to do.
func (e *another) Error() string {
	switch {
	case !e.stopping.IsZero():
		return fmt.Sprintf("the daemon of this lab (pid %d) is still stopping, since %s, and has %s: start again once it has ended; kill %d ends it at "+
			"once", e.pid, e.stopping.Local().Format(time.DateTime), e.keys, e.pid)
	case sameLab(e.lab, e.own):
		return fmt.Sprintf("another bootlab (pid %d, lab file %s) already serves, and has %s: bootlab reload applies a changed lab file; to restart it, stop it first", e.pid, e.lab, e.keys)
	}
	return fmt.Sprintf("another bootlab (pid %d, lab file %s) already serves, and has %s: stop it, or set other addresses or ports", e.pid, e.lab, e.keys)
}

// stopWait is how long a start waits for the daemon of the same lab that is stopping. That one takes less: operations.md has its limits.
const stopWait = 2 * time.Minute

// closeWait is how long a start waits for ports of the daemon of the same lab whose admin socket is closed: they follow.
const closeWait = 5 * time.Second

// askWait is how long the other daemon has to say since when it stops.
const askWait = time.Second

// stopPoll is how often a start looks again.
const stopPoll = 100 * time.Millisecond

// Open opens the socket of the command line and the ports that wanted returns. If the daemon of this lab is stopping, it waits until that has
// ended.
func Open(ctx context.Context, cfg Config, wanted func() []Endpoint) (*Ports, error) {
	var waited *another
	for began := time.Now(); ; {
		s, err := open(ctx, cfg, wanted())
		other, is := err.(*another) // alone: what else is in the way does not go away
		if is && waited != nil && other.pid == waited.pid {
			other.stopping = waited.stopping // its last sockets are about to be closed
		}
		closing := is && sameLab(other.lab, other.own) && !strings.Contains(other.keys, adminSocketKey) && time.Since(began) < closeWait
		if !is || other.stopping.IsZero() && !closing || ctx.Err() != nil || time.Since(began) > stopWait {
			return s, err
		}
		if waited == nil && !closing {
			cfg.Log.Info("the daemon of this lab is still stopping: this start waits until it has ended", "pid", other.pid, "stopping_since", other.stopping)
		}
		if !closing {
			waited = other
		}
		select {
		case <-ctx.Done():
		case <-time.After(stopPoll):
		}
	}
}

func command(pid int) string {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(comm))
}

func arguments(pid int) []string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(line), "\x00")
}

// labOf returns the lab file that the command line of a daemon names.
func labOf(pid int) string {
	lab, args := DefaultLab, arguments(pid)
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, "--lab="); ok {
			lab = value
		} else if a == "--lab" && i+1 < len(args) {
			lab = args[i+1]
		}
	}
	if folder, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && !filepath.IsAbs(lab) {
		lab = filepath.Join(folder, lab)
	}
	return lab
}

func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

// peer returns the PID of the process that listens on the other end of a Unix socket; 0: not known.
func peer(c net.Conn) (pid int) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && int(cred.Pid) != os.Getpid() {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// stoppingSince asks the daemon on an admin socket since when it stops; zero: it does not, or does not say.
func stoppingSince(ctx context.Context, socket string) time.Time {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	c, err := api.NewClient(socket, "")
	if err != nil {
		return time.Time{}
	}
	s, _ := c.Status(ctx) // it may end meanwhile
	return s.Stopping
}
