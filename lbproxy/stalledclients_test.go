package lbproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestStalledClients: clients that leave their requests unfinished are waited for by the backends. None is ejected for them, whether others
// ask meanwhile or not.
func TestStalledClients(t *testing.T) {
	t.Parallel()
	const part = "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
	for _, test := range []struct {
		name     string
		mode     lab.BalanceMode
		check    lab.CheckKind
		protocol lab.BackendProtocol
		http2    bool // the clients send streams on one connection
		send     string
		alone    bool // nobody else asks
	}{
		{"bodies", lab.ModeHTTP, lab.CheckTCP, lab.BackendHTTP1, false, part, true},
		{"chunks", lab.ModeHTTP, lab.CheckNone, lab.BackendHTTP1, false, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true},
		{"streams", lab.ModeHTTP, lab.CheckTCP, lab.BackendHTTP1, true, "", true},
		{"bodies to h2c", lab.ModeHTTP, lab.CheckTCP, lab.BackendH2C, false, part, true},
		{"streams to h2c", lab.ModeHTTP, lab.CheckTCP, lab.BackendH2C, true, "", true},
		{"heads", lab.ModeTCP, lab.CheckNone, lab.BackendHTTP1, false, "GET / HTTP/1.1\r\nHos", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			handle := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "ok")
			}
			b := with(balancer("web", addr(t), h2cServer(t, handle), h2cServer(t, handle)), func(b *lab.Balancer) {
				b.Mode, b.Check.Kind, b.Protocol = test.mode, test.check, test.protocol
			})
			netns.Tries(t, 3, func(int) string { // a backend of a process that is stopped for seconds is silent, this one too
				r := newTestServer(t, Config{}, b)
				defer r.stop()
				get := func() {
					t.Helper()
					c := dial(t, b.Listen)
					defer func() { _ = c.Close() }()
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
					if got, _ := io.ReadAll(c); !strings.HasSuffix(string(got), "ok") {
						t.Errorf("a client got %q", got)
					}
				}
				for range 4 {
					get()
				}
				for range 8 {
					if !test.http2 {
						c := dial(t, b.Listen)
						_, _ = io.WriteString(c, test.send)
					}
				}
				if test.http2 {
					client := h2cClient(t)
					for range 8 {
						body, w := io.Pipe()
						t.Cleanup(func() { _ = w.Close() })
						go func() {
							resp, err := client.Post("http://"+b.Listen.String()+"/slow", "", body)
							if err == nil {
								_ = resp.Body.Close()
							}
						}()
						_, _ = io.WriteString(w, "abc")
					}
				}
				for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					if !test.alone {
						get()
					}
				}
				if down := r.recorder.of(event.BackendDown); len(down) > 0 {
					return fmt.Sprintf("%d times down: %s", len(down), down[0].Err)
				}
				return ""
			})
		})
	}
}

// TestLongPolls: requests that take long, while nothing else is asked, let others go elsewhere; they get their answers. An answer to
// another client shows that they only take long: the backend is not ejected for them again.
func TestLongPolls(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	back := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/poll" {
			select {
			case <-finish:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP })
	r := newTestServer(t, Config{}, b)
	const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	_ = ask(t, b.Listen, get)
	var polls sync.WaitGroup
	for range 8 {
		polls.Go(func() {
			if got := ask(t, b.Listen, "GET /poll HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "ok") {
				t.Errorf("a poll got %q", got)
			}
		})
	}
	r.waitHealth(t, back, Down)
	for range 3 {
		if got := ask(t, b.Listen, get); !strings.HasSuffix(got, "ok") {
			t.Errorf("a client got %q", got)
		}
		r.waitHealth(t, back, Up)
		time.Sleep(silentFor + 3*silenceTick)
	}
	close(finish)
	polls.Wait()
	if n := len(r.recorder.of(event.BackendDown)); n != 1 {
		t.Errorf("down %d times, want once", n)
	}
}

// TestStalledBody: a client that is silent in its body gets 408, not 504, also where both timeouts are the same. It is no error of the backend.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	back := h2cServer(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for _, protocol := range []lab.BackendProtocol{lab.BackendHTTP1, lab.BackendH2C} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
				b.Protocol, b.Timeouts.Body, b.Timeouts.Server = protocol, time.Second, time.Second
			})
			r := newTestServer(t, Config{}, b)
			var clients sync.WaitGroup
			for _, client := range []*http.Client{httpClient(t), h2cClient(t)} {
				for range 4 {
					clients.Go(func() {
						body, w := io.Pipe()
						defer func() { _ = w.Close() }()
						go func() { _, _ = io.WriteString(w, "abc") }()
						resp, err := client.Post("http://"+b.Listen.String()+"/", "", body)
						if err != nil {
							t.Error(err)
							return
						}
						text, _ := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if resp.StatusCode != http.StatusRequestTimeout || strings.TrimSpace(string(text)) != errBodyTimeout.Error() {
							t.Errorf("%s: %s %q, want 408", resp.Proto, resp.Status, text)
						}
					})
				}
			}
			clients.Go(func() { // the backend has sent 100
				c := dial(t, b.Listen)
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
				time.Sleep(100 * time.Millisecond)
				_, _ = io.WriteString(c, "abc")
				if got, _ := io.ReadAll(c); !strings.Contains(string(got), "HTTP/1.1 408 ") {
					t.Errorf("after 100: got %q, want 408", got)
				}
			})
			clients.Wait()
			r.waitEnded(t, "web")
			if n := testutil.CollectAndCount(r.metrics.backendErrors); n > 0 {
				t.Errorf("%d kinds of errors count against the backend", n)
			}
		})
	}
}

// TestSilentAfterContinue: timeouts.server ends the wait for a backend that has sent 100 and got the whole body.
func TestSilentAfterContinue(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Server = time.Second })
	newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if got := readLine(t, c); !strings.Contains(got, " 100 ") {
		t.Errorf("got %q, want 100", got)
	}
	_, _ = io.WriteString(c, "abc")
	if got, err := io.ReadAll(c); !strings.Contains(string(got), "HTTP/1.1 504 ") {
		t.Errorf("got %q, %v, want 504", got, err)
	}
}
