package lbproxy

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestMoverWithFewPipes moves much in both directions of more connections than there are pipes.
func TestMoverWithFewPipes(t *testing.T) {
	t.Parallel()
	for _, pipes := range []int{0, 3} {
		t.Run(fmt.Sprint(pipes), func(t *testing.T) {
			t.Parallel()
			b := balancer("b", addr(t), serveTCP(t, func(c net.Conn) {
				_, _ = io.Copy(c, c)
				_ = c.(*net.TCPConn).CloseWrite()
			}))
			r := newTestServer(t, Config{}, b)
			r.pipes.mu.Lock()
			r.pipes.most = pipes
			r.pipes.mu.Unlock()
			sent := make([]byte, 3<<20)
			_, _ = rand.Read(sent)
			var tasks sync.WaitGroup
			for range 12 {
				c := dial(t, b.Listen)
				tasks.Go(func() {
					_, _ = c.Write(sent)
					_ = c.CloseWrite()
				})
				tasks.Go(func() {
					if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
						t.Errorf("%d bytes came back, %v, different from the %d sent", len(got), err, len(sent))
					}
				})
			}
			tasks.Wait()
			r.pipes.mu.Lock()
			defer r.pipes.mu.Unlock()
			if r.pipes.open > pipes {
				t.Errorf("%d pipes are open, want at most %d", r.pipes.open, pipes)
			}
		})
	}
}

// BenchmarkBulk moves one stream through the balancer, beside idle connections that were busy before.
func BenchmarkBulk(b *testing.B) {
	for _, idle := range []int{0, 40, 1000} {
		b.Run(fmt.Sprint(idle, " idle"), func(b *testing.B) {
			chunk := make([]byte, 1<<20)
			lab := balancer("b", addr(b), serveTCP(b, func(c net.Conn) {
				for {
					if _, err := c.Write(chunk); err != nil {
						return
					}
					if _, err := c.Read(chunk[:1]); err != nil {
						return
					}
				}
			}))
			newTestServer(b, Config{}, lab)
			for range idle {
				c := dial(b, lab.Listen)
				_, _ = io.ReadFull(c, chunk)
			}
			c := dial(b, lab.Listen)
			_ = c.SetDeadline(time.Time{})
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				_, _ = io.ReadFull(c, chunk)
				_, _ = c.Write(chunk[:1])
			}
		})
	}
}

// BenchmarkIdle opens idle connections through a balancer, and reports what each adds to the process's resident memory.
// Their other ends are in other processes.
func BenchmarkIdle(b *testing.B) {
	const conns = 8000
	if what := os.Getenv("LBPROXY_IDLE"); what != "" {
		idleHelper(what, conns)
		return
	}
	back := addr(b)
	lab := balancer("b", addr(b), back)
	r := newTestServer(b, Config{Connections: 2 * conns, Sweep: time.Second}, lab)
	helper := func(what string) (stop func()) {
		cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkIdle$", "-test.benchtime=1x")
		cmd.Env = append(os.Environ(), "LBPROXY_IDLE="+what)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		var text []byte
		for line := make([]byte, 256); !bytes.Contains(text, []byte("ready")); {
			n, err := out.Read(line)
			if err != nil {
				b.Fatalf("%s: %s", what, text)
			}
			text = append(text, line[:n]...)
		}
		return func() { _ = in.Close(); _ = cmd.Wait() }
	}
	for b.Loop() {
		stopServer := helper("serve " + back.String())
		runtime.GC()
		before := resident(b)
		stop := helper("dial " + lab.Listen.String())
		netns.WaitFor(b, "all connected", func() bool { return len(r.sessions.all()) == conns })
		debug.FreeOSMemory() // as some minutes later
		after := resident(b)
		b.ReportMetric(float64(after-before)/conns, "B/conn")
		b.ReportMetric(float64(after)/(1<<20), "MiB")
		stop()
		stopServer()
	}
}

// idleHelper is one end of the connections of BenchmarkIdle, until its standard input ends.
func idleHelper(what string, conns int) {
	kind, at, _ := strings.Cut(what, " ")
	var held []net.Conn
	var mu sync.Mutex
	line := make([]byte, 2)
	switch kind {
	case "serve":
		l, err := net.Listen("tcp", at)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "b\n")
				mu.Lock()
				held = append(held, c)
				mu.Unlock()
			}
		}()
	case "dial":
		for range conns {
			c, err := net.Dial("tcp", netip.MustParseAddrPort(at).String())
			if err != nil {
				panic(err)
			}
			if _, err := io.ReadFull(c, line); err != nil {
				panic(err)
			}
			held = append(held, c)
		}
	}
	fmt.Println("ready")
	_, _ = io.ReadAll(os.Stdin)
	mu.Lock()
	runtime.KeepAlive(held)
	mu.Unlock()
}

// resident returns the resident memory of this process in bytes.
func resident(b *testing.B) int {
	all, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(all))[1])
	return pages * os.Getpagesize()
}
