package lbproxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestPanicIsContained: a panic on the way to one backend ends that connection. It is counted, and the other connections go on.
func TestPanicIsContained(t *testing.T) {
	t.Parallel()
	all, err := panics.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	marked, alive := addr(t), serveTCP(t, nameServer("alive"))
	deps := Deps{Panics: all.Server("lbproxy"), Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to == marked {
			panic("a bug")
		}
		return dialTCP(ctx, to)
	}}
	tcp, web, good := addr(t), addr(t), addr(t)
	http1 := with(balancer("web", web, marked), func(b *lab.Balancer) { b.Mode, b.Timeouts.Connect = lab.ModeHTTP, 500*time.Millisecond })
	bad := with(balancer("bad", tcp, marked), func(b *lab.Balancer) { b.Timeouts.Connect = 500 * time.Millisecond })
	newTestServerWith(t, Config{}, deps, bad, http1, balancer("good", good, alive))
	if _, err := readAll(tcp); err == nil {
		t.Error("a connection to nowhere ended without an error")
	}
	if resp, err := http.Get("http://" + web.String()); err == nil {
		_ = resp.Body.Close()
	}
	if got := readLine(t, dial(t, good)); got != "alive" {
		t.Errorf("after panics another balancer answers %q", got)
	}
	netns.WaitFor(t, "two panics", func() bool { return all.Counts()["lbproxy"].N >= 2 })
}
