package virt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/process/confine"
)

// Processes is the driver that runs a process for each hypervisor, which alone loads libvirt's library: libvirt may crash or hang
// there, and ends nothing else. A call that does not return in time ends with its process, and the next one starts another.
type Processes struct {
	// Program is run for each hypervisor: one that calls HypervisorProcess first, such as /proc/self/exe.
	Program string
	// Confine returns what the process for a URI may open; nil: it is as confined as this process.
	Confine func(uri string) *confine.Paths
	// Log gets a line for each process that ended by itself.
	Log *slog.Logger
}

// Limits of calls and processes.
const (
	connectWait  = 20 * time.Second // ssh may take some
	callWait     = time.Minute      // of a call whose context has no deadline
	smallUpload  = 1 << 20          // up to here the content is part of the request
	maxUploads   = 2                // large ones at a time, for each hypervisor
	restartFirst = time.Second      // pause after a process that ended by itself; doubles
	restartMost  = 30 * time.Second
	maxStderr    = 2 << 10
)

// hypervisorProcess is the variable in the environment of a process for one hypervisor. The C code asks for it too.
const hypervisorProcess = "BOOTLAB_HYPERVISOR"

// Open implements Driver.
func (p *Processes) Open(uri string, changed func([]string)) Hypervisor {
	return &remote{driver: p, uri: uri, changed: changed, turn: make(chan struct{}, 1), uploads: make(chan struct{}, maxUploads)}
}

// A remote is a Hypervisor that has its own process.
type remote struct {
	driver  *Processes
	uri     string
	changed func(uuids []string)
	turn    chan struct{} // holds a value during a call
	uploads chan struct{} // holds one for each large upload

	// These belong to who has the turn.
	process *process
	pause   time.Duration // after the last process that ended by itself
	next    time.Time     // no process before
	why     error         // why it ended

	mu     sync.Mutex
	closed bool
	live   []*process // that Close ends
}

// errBusy is the error of a call that had to wait for others until its context ended.
var errBusy = errors.New("another call to the hypervisor is in progress")

// call makes one call, in the process of the hypervisor, and returns its result.
func (r *remote) call(ctx context.Context, method string, args ...any) (json.RawMessage, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
	defer func() { <-r.turn }()
	p, err := r.connected(ctx)
	if err != nil {
		return nil, Unreachable(fmt.Errorf("connect to %s: %w", r.uri, err))
	}
	resp, err := p.call(ctx, callWait, method, args...)
	switch {
	case err != nil:
		r.drop(err)
		return nil, Unreachable(fmt.Errorf("%s on %s: %w", method, r.uri, err))
	case resp.Broken: // libvirt closed the connection; a new process is as good as a new connection, and surer
		r.drop(nil)
		return nil, Unreachable(errors.New(resp.Err))
	case resp.Err != "":
		return nil, errors.New(resp.Err)
	}
	r.pause = 0
	return resp.Result, nil
}

// connected returns the process, connected to the hypervisor.
func (r *remote) connected(ctx context.Context) (*process, error) {
	if r.process != nil && r.process.ended() {
		r.drop(r.process.err())
	}
	if r.process != nil {
		return r.process, nil
	}
	if wait := time.Until(r.next); wait > 0 {
		return nil, fmt.Errorf("%w; a new process is started in %s", r.why, max(wait, time.Second).Round(time.Second))
	}
	changes, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p, err := r.connect(ctx, theirs, connection{Changes: true})
	_ = theirs.Close()
	if err != nil {
		_ = changes.Close()
		return nil, err
	}
	go r.watch(changes)
	r.process = p
	return p, nil
}

// watch reads which domains have changed, a UUID in each line, until the process ends.
func (r *remote) watch(changes *os.File) {
	defer func() { _ = changes.Close() }()
	buf := make([]byte, 64<<10) // all that the pipe holds
	for {
		n, err := changes.Read(buf)
		if err != nil {
			return
		}
		var uuids []string
		for line := range strings.Lines(string(buf[:n])) {
			if uuid := strings.TrimSpace(line); !slices.Contains(uuids, uuid) {
				uuids = append(uuids, uuid)
			}
		}
		r.changed(uuids)
	}
}

// connect starts a process and connects it to the hypervisor. pipe is what it uploads, or, with Changes, where it writes which domains
// have changed; nil: nothing.
func (r *remote) connect(ctx context.Context, pipe *os.File, to connection) (*process, error) {
	name := "hypervisor"
	if to.Consoles {
		name = "consoles"
	}
	p, err := r.start(name, pipe)
	if err != nil {
		return nil, err
	}
	to.URI = r.uri
	if r.driver.Confine != nil {
		to.Confine = r.driver.Confine(r.uri)
	}
	resp, err := p.call(ctx, connectWait, methodConnect, to)
	if err == nil && resp.Err != "" {
		err = errors.New(resp.Err)
	}
	if err != nil {
		r.forget(p)
		return nil, err
	}
	return p, nil
}

// start starts a process that Close ends. Its name is what ps shows.
func (r *remote) start(name string, content *os.File) (*process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("the connection was closed: the hypervisor was taken out of the lab file, or the daemon is stopping")
	}
	p, err := r.driver.run(name, r.uri, content)
	if err != nil {
		return nil, fmt.Errorf("start a process for it: %w", err)
	}
	r.live = append(r.live, p)
	return p, nil
}

// drop ends the process. After one that ended by itself the next has to wait.
func (r *remote) drop(why error) {
	p := r.process
	r.process = nil
	r.forget(p)
	if p.killed || why == nil {
		return
	}
	r.pause = min(max(2*r.pause, restartFirst), restartMost)
	r.next, r.why = time.Now().Add(r.pause), why
	r.driver.Log.Warn("the process of a hypervisor ended", "uri", r.uri, "err", why)
}

func (r *remote) forget(p *process) {
	p.kill()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = slices.DeleteFunc(r.live, func(other *process) bool { return other == p })
}

// Close implements Hypervisor.
func (r *remote) Close() {
	r.mu.Lock()
	r.closed = true
	live := r.live
	r.mu.Unlock()
	for _, p := range live {
		p.kill()
	}
}

// A process runs HypervisorProcess.
type process struct {
	cmd    *exec.Cmd
	conn   net.Conn
	stderr firstBytes // readable once done is closed
	done   chan struct{}
	end    sync.Once
	killed bool // by kill, readable after it
}

// run starts a process that is named so in ps.
func (p *Processes) run(name, uri string, content *os.File) (*process, error) {
	if p.Program == "" {
		return nil, errors.New("this program manages no virtual machines (virt.Processes.Program is empty)")
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	child := &process{conn: ours, done: make(chan struct{})}
	child.cmd = exec.Command(p.Program)
	child.cmd.Args = []string{"bootlab", name, uri} // for ps
	child.cmd.Env = processEnviron()
	child.cmd.Stderr = &child.stderr
	child.cmd.ExtraFiles = []*os.File{theirs}
	if content != nil {
		child.cmd.ExtraFiles = append(child.cmd.ExtraFiles, content)
	}
	// A session of its own: no terminal to ask for passwords on, and one signal ends ssh too.
	child.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, err
	}
	go func() {
		defer close(child.done)
		_ = child.cmd.Wait() // ProcessState has it
	}()
	return child, nil
}

// processEnviron returns the environment without what systemd says to the daemon alone.
func processEnviron() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, name := range []string{"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "GOTRACEBACK=", "MALLOC_ARENA_MAX="} {
			if strings.HasPrefix(v, name) {
				return true
			}
		}
		return false
	})
	return append(env, hypervisorProcess+"=1", "GOTRACEBACK=single", "MALLOC_ARENA_MAX=2")
}

// socketPair returns the two ends of a socket.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "hypervisor"), os.NewFile(uintptr(fds[1]), "daemon")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// call sends a request and waits for the response, until ctx ends and for most at most.
func (p *process) call(ctx context.Context, most time.Duration, method string, args ...any) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
	var resp response
	err := writeRequest(p.conn, method, args)
	if err == nil {
		err = readFrame(p.conn, &resp)
	}
	if ended := !stop(); err == nil {
		if ended { // just now: the connection has a deadline in the past
			p.kill()
		}
		return &resp, nil
	}
	if ctx.Err() != nil {
		p.kill()
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	}
	_ = p.conn.Close() // a process that closed its end or wrote nonsense ends now
	select {
	case <-p.done:
		return nil, p.err()
	case <-ctx.Done():
		p.kill()
		return nil, err
	}
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// err says how the process ended. It has ended.
func (p *process) err() error {
	why := p.cmd.ProcessState.String()
	if line, _, _ := bytes.Cut(bytes.TrimSpace(p.stderr.b), []byte("\n")); len(line) > 0 {
		why += ": " + string(line)
	}
	return fmt.Errorf("the libvirt process of the hypervisor ended: %s", why)
}

// kill ends the process and what it started, unless it has ended, and waits for it.
func (p *process) kill() {
	p.end.Do(func() {
		p.killed = !p.ended()
		_ = p.conn.Close()
		// The process is the leader of its group until Wait has returned: the number is of no other.
		if p.killed {
			_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
			_ = p.cmd.Process.Kill()
		}
	})
	<-p.done
}

// firstBytes keeps the first bytes that are written.
type firstBytes struct{ b []byte }

// Write implements io.Writer.
func (f *firstBytes) Write(p []byte) (int, error) {
	f.b = append(f.b, p[:min(len(p), maxStderr-len(f.b))]...)
	return len(p), nil
}
