package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The veth pair between balancer and load. The load's side has the backends.
const (
	lbSpace    = "lb-server"
	lbAddr     = "10.99.0.1"
	lbLoadAddr = "10.99.0.2"
)

// An lbRig is two namespaces: the balancer's on one CPU, that of clients and backends on another.
type lbRig struct {
	*bench
	asking   time.Duration
	settle   time.Duration // until idle connections have given back what they need while they move bytes
	body     int64         // bytes
	cpus     [2]string
	backends process
	noise    noise
}

func newLBRig(ctx context.Context, b *bench) (*lbRig, error) {
	r := &lbRig{bench: b, asking: 4 * time.Second, settle: 15 * time.Second, body: 512 << 20}
	if b.quick {
		r.asking, r.settle, r.body = time.Second, 3*time.Second, 64<<20
	}
	var err error
	if r.cpus, err = twoCPUs(); err != nil {
		return nil, err
	}
	err = veth(ctx, lbSpace, "lb", lbAddr, lbLoadAddr)
	if err == nil {
		err = r.reusePorts(ctx)
	}
	if err == nil {
		err = r.backends.beginSelf(favored(r.cpus[1]), filepath.Join(r.dir, "backends.log"), lbBackendCommand, fmt.Sprint(r.body))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// reusePorts does what the function does, and the same for the balancer, which connects as often.
func (r *lbRig) reusePorts(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", lbSpace, "sysctl", "-qw",
		"net.ipv4.ip_local_port_range=1024 65535", "net.ipv4.tcp_tw_reuse=1").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("sysctl: %w: %s", err, out)
	}
	return errors.Join(err, reusePorts())
}

func (r *lbRig) close() {
	r.backends.kill()
	_ = exec.Command("ip", "netns", "del", lbSpace).Run()
}

// An lbRunning is a candidate that runs.
type lbRunning struct {
	process
	*lbServer
	rig *lbRig
	dir string
}

// unprivileged is the prefix of a command that runs as the user nobody: the kernel limits the pipes of such a user.
var unprivileged = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}

// start starts a candidate and waits until it answers in TCP and in HTTP mode.
func (r *lbRig) start(ctx context.Context, c *lbServer) (*lbRunning, error) {
	dir, err := r.scratch(c.name)
	if err != nil {
		return nil, err
	}
	s := &lbRunning{lbServer: c, rig: r, dir: dir}
	args, err := c.args(r.binary, dir)
	if err == nil {
		err = os.Chown(dir, 65534, 65534)
	}
	if err != nil {
		return nil, err
	}
	if err := s.begin(favored(r.cpus[0]), lbSpace, append(unprivileged, args...), nil, filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	err = s.await(ctx, func() error {
		for _, port := range []string{lbPortTCP, lbPortHTTP} {
			idle, err := holdIdle(ctx, lbAddr+port, 1)
			if err != nil {
				return err
			}
			idle.close()
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not answer: %w", c.name, err), s.stop())
	}
	return s, nil
}

func (s *lbRunning) stop() error { return s.rig.leave(&s.process, s.dir) }

// idleConns are open connections of which each had one request and its answer.
type idleConns []net.Conn

func holdIdle(ctx context.Context, addr string, n int) (idle idleConns, err error) {
	for range n {
		conn, err := request(ctx, addr)
		if err != nil {
			idle.close()
			return nil, fmt.Errorf("idle connection %d: %w", len(idle)+1, err)
		}
		idle = append(idle, conn)
	}
	return idle, nil
}

// request opens a connection, and sends one request and reads its answer.
func request(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", addr)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReader(conn), nil)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// stillOpen returns an error if a connection was closed: a balancer at its limit may evict what is idle.
func (i idleConns) stillOpen() error {
	for n, c := range i {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var found error
		if err := raw.Control(func(fd uintptr) {
			_, _, found = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}); err != nil {
			return err
		}
		if !errors.Is(found, unix.EAGAIN) { // nil: the end
			return fmt.Errorf("idle connection %d of %d did not stay open: %w", n+1, len(i), cmp.Or(found, io.EOF))
		}
	}
	return nil
}

// close resets the connections, so that none stays in TIME_WAIT.
func (i idleConns) close() {
	for _, c := range i {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}
