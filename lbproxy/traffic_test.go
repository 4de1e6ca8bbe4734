package lbproxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestLatencyQuantiles holds that a quantile is off by a quarter at most, whatever its size, and that old latencies are forgotten.
func TestLatencyQuantiles(t *testing.T) {
	t.Parallel()
	for d := time.Microsecond; d < time.Hour; d = d*9/7 + time.Microsecond {
		var l traffic
		l.add(d)
		if p50, p99 := l.quantiles(); p50 != p99 || p50 < d*3/4-time.Microsecond || p50 > d*5/4+time.Microsecond {
			t.Errorf("p50 and p99 of %s alone are %s and %s", d, p50, p99)
		}
	}
	var l traffic
	for range 985 {
		l.add(time.Millisecond)
	}
	for range 15 {
		l.add(time.Second)
	}
	if p50, p99 := l.quantiles(); p50 > 2*time.Millisecond || p99 < 500*time.Millisecond {
		t.Errorf("p50 %s, p99 %s", p50, p99)
	}
	l.rotate()
	l.add(time.Minute)
	if p50, _ := l.quantiles(); p50 > 2*time.Millisecond {
		t.Errorf("p50 %s after one turn: the latencies before are forgotten too early", p50)
	}
	l.rotate()
	l.rotate()
	if p50, p99 := l.quantiles(); p50 != 0 || p99 != 0 {
		t.Errorf("p50 %s, p99 %s of what was before the last turns", p50, p99)
	}
}

// TestTraffic holds that connections, requests and errors are counted for the backend that had them.
func TestTraffic(t *testing.T) {
	t.Parallel()
	tcp := balancer("tcp", addr(t), serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	web := httpBalancer("web", addr(t), serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	refusing := balancer("refusing", addr(t), addr(t))
	r := newTestServer(t, Config{}, tcp, web, refusing)
	for range 3 {
		c := dial(t, tcp.Listen)
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/", "/", "/bad"} {
		resp, err := httpClient(t).Post("http://"+web.Listen.String()+path, "text/plain", bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	state := func(name string) BackendStatus {
		for _, b := range r.Status() {
			if b.Name == name {
				return b.Backends[0]
			}
		}
		return BackendStatus{}
	}
	netns.WaitFor(t, "all counted", func() bool {
		return state("tcp").Total == 3 && state("web").Total == 3 && state("web").Errors == 1
	})
	for _, name := range []string{"tcp", "web"} {
		if s := state(name); s.P99 < s.P50 {
			t.Errorf("%s: p50 %s, p99 %s", name, s.P50, s.P99)
		}
	}
	_ = dial(t, refusing.Listen)
	netns.WaitFor(t, "the refused connection to be counted", func() bool { return state("refusing").Errors > 0 })
}
