package netns

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// NewNginx serves the files of dir by a real nginx on loopback, in the foreground, and returns its address. It ends with
// the test.
func NewNginx(t testing.TB, dir string) string {
	t.Helper()
	Need(t, "nginx")
	own := t.TempDir()
	// nginx started as root reads files as another user, who may not enter the folders of a test.
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	addr := SparePort(t)
	conf := filepath.Join(own, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events {}
http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
 server { listen %[2]s; root %[3]s; } }
`, own, addr, dir)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nginx", "-c", conf, "-e", filepath.Join(own, "error.log"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return addr
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(filepath.Join(own, "error.log"))
			t.Fatalf("nginx does not answer: %v\n%s", err, text)
		}
	}
}

// SparePort returns an address and port of loopback for a server that has to be given one. No other test uses the address, so nobody takes
// the port before the server does.
func SparePort(t testing.TB) string {
	t.Helper()
	n := serial.Add(1)
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 128+os.Getpid()%64, 1+n/250%250, 1+n%250))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// A Cutter is a proxy that breaks connections.
type Cutter struct {
	Addr  string       // to connect to
	After atomic.Int64 // bytes of answers until a connection is closed; 0: it never is
	Cuts  atomic.Int64 // connections that were closed so
	close func()
}

// Close breaks all connections and takes no more. None is left when it returns.
func (c *Cutter) Close() { c.close() }

// NewCutter passes connections on to a server. It ends with the test.
func NewCutter(t testing.TB, server string) *Cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	c := &Cutter{Addr: l.Addr().String(), close: func() { cancel(); _ = l.Close(); wg.Wait() }}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.pass(ctx, conn, server) })
		}
	})
	t.Cleanup(c.Close)
	return c
}

func (c *Cutter) pass(ctx context.Context, client net.Conn, server string) {
	defer client.Close()
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = up.Close() })()
	var asks sync.WaitGroup
	asks.Go(func() { _, _ = io.Copy(up, client); _ = up.Close() })
	var answers io.Reader = up
	after := c.After.Load()
	if after > 0 {
		answers = io.LimitReader(up, after)
	}
	n, _ := io.Copy(client, answers)
	if after > 0 && n == after {
		c.Cuts.Add(1)
	}
	_ = client.Close()
	_ = up.Close()
	asks.Wait()
}
