package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The veth pair between server and load.
const (
	httpSpace    = "http-server"
	httpAddr     = "10.97.0.1"
	httpLoadAddr = "10.97.0.2"
)

type httpSizes struct {
	image  int64 // bytes
	asking time.Duration
}

func httpSizesFor(quick bool) httpSizes {
	if quick {
		return httpSizes{image: 128 << 20, asking: time.Second}
	}
	return httpSizes{image: 1 << 30, asking: 5 * time.Second}
}

// An httpRig is two namespaces, the server's on one CPU and the load's on another, and what is fetched.
type httpRig struct {
	*bench
	size  httpSizes
	cpus  [2]string
	root  string
	noise noise
}

func newHTTPRig(ctx context.Context, b *bench) (*httpRig, error) {
	r := &httpRig{bench: b, size: httpSizesFor(b.quick), root: filepath.Join(b.dir, "http")}
	var err error
	if r.cpus, err = twoCPUs(); err != nil {
		return nil, err
	}
	if err := r.files(); err != nil {
		return nil, err
	}
	err = veth(ctx, httpSpace, "http", httpAddr, httpLoadAddr)
	if err == nil {
		err = ip(ctx, [][]string{{"link", "set", "http0", "address", strings.ReplaceAll(benchMAC, "-", ":")}})
	}
	if err == nil {
		err = reusePorts()
	}
	if err == nil {
		err = r.render(ctx)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// files writes what is fetched: noise, in the page cache since it was just written.
func (r *httpRig) files() error {
	public := filepath.Join(r.root, "public")
	if err := os.MkdirAll(public, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(public, imageName))
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{7}), r.size.image)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	small := make([]byte, 1024)
	_, _ = rand.NewChaCha8([32]byte{8}).Read(small)
	return os.WriteFile(filepath.Join(public, smallName), small, 0o644)
}

// render asks bootlab for the script that all candidates hand out.
func (r *httpRig) render(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(r.root, "public", scriptName), nil, 0o644); err != nil {
		return err
	}
	s, err := r.start(ctx, httpServers()[0])
	if err != nil {
		return err
	}
	script, err := s.get(ctx, s.script)
	return errors.Join(err, os.WriteFile(filepath.Join(r.root, "public", scriptName), script, 0o644), s.stop())
}

func (r *httpRig) close() { _ = exec.Command("ip", "netns", "del", httpSpace).Run() }

// An httpRunning is a candidate that runs.
type httpRunning struct {
	process
	*httpServer
	rig *httpRig
	dir string
}

// start starts a candidate and waits until it serves what it should.
func (r *httpRig) start(ctx context.Context, c *httpServer) (*httpRunning, error) {
	dir, err := r.scratch(c.name)
	if err != nil {
		return nil, err
	}
	s := &httpRunning{httpServer: c, rig: r, dir: dir}
	args, err := c.args(r.binary, s.dir, r.root)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(s.dir, "log")
	if err := s.begin(favored(r.cpus[0]), httpSpace, args, nil, log); err != nil {
		return nil, err
	}
	var got []byte
	if err := s.await(ctx, func() (err error) { got, err = s.get(ctx, s.script); return err }); err != nil {
		return nil, errors.Join(fmt.Errorf("%s serves nothing: %w", c.name, err), s.stop())
	}
	if r.started > 1 { // the first is asked what it renders
		err = r.sameScript(got)
	}
	return s, err
}

func (s *httpRunning) url(path string) string { return "http://" + httpAddr + path }

func (s *httpRunning) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(path), nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(r) // no proxy
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func (s *httpRunning) stop() error { return s.rig.leave(&s.process, s.dir) }

// httpLoadCommand is the argument that makes this program the load, in a process and on a CPU of its own, for one order.
const httpLoadCommand = "http-load"

// An httpOrder is a command to the load: a line of JSON.
type httpOrder struct {
	Addr, Path string
	Clients    int
}

// An httpResult is what it answers.
type httpResult struct {
	Bytes int64 // of bodies
	Took  time.Duration
}

// fetch has a path fetched by several clients at once, from a CPU.
func (o httpOrder) fetch(ctx context.Context, cpu string, n *noise) (got httpResult, err error) {
	n.during(func() { err = carryOut(ctx, favored(cpu), httpLoadCommand, o, &got) })
	return got, err
}

// runHTTPLoad carries out one order.
func runHTTPLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var o httpOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	bodies, errs := make([]int64, o.Clients), make([]error, o.Clients)
	start := time.Now()
	var clients sync.WaitGroup
	for i := range o.Clients {
		clients.Go(func() { bodies[i], errs[i] = download(ctx, o) })
	}
	clients.Wait()
	got := httpResult{Took: time.Since(start)}
	for _, n := range bodies {
		got.Bytes += n
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(got)
}

// download fetches a path and returns the length of the body, which it does not look at.
func download(ctx context.Context, o httpOrder) (int64, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", o.Path, o.Addr); err != nil {
		return 0, err
	}
	header, body, err := readHeader(c)
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(header, []byte("HTTP/1.1 200 ")) {
		return 0, fmt.Errorf("%.60s", header)
	}
	dropped, err := drop(c.(*net.TCPConn))
	return body + dropped, err
}

// readHeader returns the header of an answer, and how much of the body came with it.
func readHeader(c net.Conn) (header []byte, body int64, err error) {
	buf := make([]byte, 0, 4096)
	for len(buf) < cap(buf) {
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if end := bytes.Index(buf, []byte("\r\n\r\n")); end >= 0 {
			return buf[:end], int64(len(buf) - end - 4), nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, errors.New("the header has no end")
}

// drop reads to the end, in the kernel: MSG_TRUNC copies nothing to us, see tcp(7).
func drop(c *net.TCPConn) (total int64, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	const most = 1 << 20
	buf := make([]byte, most)
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil || n == 0:
				failed = err
				return true
			}
			total += int64(n)
		}
	})
	return total, errors.Join(err, failed)
}
