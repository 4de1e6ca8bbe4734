package interop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDescriptorShares: with 256 file descriptors, a flood of one server, from one source or from many, leaves all others serving.
func TestDescriptorShares(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dig", "curl", "udhcpc", "prlimit")
	l := newLab(t, "10.103.54")
	l.apart()
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		fmt.Fprint(w, "from the backend")
	}))
	_ = backend.Listener.Close() // the one on loopback
	var err error
	if backend.Listener, err = net.Listen("tcp", l.net+".254:7001"); err != nil {
		t.Fatal(err)
	}
	backend.Start()
	t.Cleanup(backend.Close)
	l.balancers = "  echo: {listen: \"NET.1:7000\", backends: [\"NET.254:7001\"]}\n  web: {listen: \"NET.1:7002\", mode: http, backends: [\"NET.254:7001\"]}\n"
	l.write()
	d := start(t, l)
	d.kill()
	d.start("prlimit", "--nofile=256:256")
	m, fresh := d.machine(t, "52:54:00:00:00:10", l.net+".10"), d.machine(t, "52:54:00:00:00:11")
	sources := []net.IP{nil}
	for i := range 30 {
		source := fmt.Sprintf("%s.%d", l.net, 100+i)
		netns.Run(t, "ip", "addr", "add", source+"/24", "dev", l.seg.Bridge)
		sources = append(sources, net.ParseIP(source))
	}
	check := func(flooded string) {
		t.Helper()
		d.until("all but "+flooded+" answer", func() bool {
			missing := slices.DeleteFunc(m.unserved(l.addr()), func(what string) bool {
				return strings.HasPrefix(what, flooded) // it may be busy, with those that came before
			})
			for _, port := range []string{"7000", "7002"} {
				if out, _ := m.run("curl", "-sS", "-m", "20", "http://"+l.addr()+":"+port+"/"); out != "from the backend" && flooded != "balancer" {
					missing = append(missing, "balancer at port "+port+": "+out)
				}
			}
			if out, _ := m.run("curl", "-sS", "-m", "20", "http://"+l.addr()+":9680/healthz"); out != "ok\n" && flooded != "admin" {
				missing = append(missing, "admin: "+out)
			}
			if a := fresh.lease(t); a != l.net+".11" {
				missing = append(missing, "DHCP: "+a)
			}
			if len(missing) > 0 {
				t.Logf("flood of %s: %q", flooded, missing)
			}
			return len(missing) == 0
		})
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid)); err != nil || len(files) > 250 {
			t.Errorf("flood of %s: %d files are open, %v", flooded, len(files), err)
		}
	}
	check("nothing")
	for _, target := range []struct{ name, network, port, say string }{
		{"HTTP", "tcp", "8080", "GET /files/images/k HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"HTTP", "tcp", "8080", ""},
		{"DNS over TCP", "tcp", "53", ""},
		{"admin", "tcp", "9680", ""},
		{"balancer", "tcp", "7000", "GET / HTTP/1.1\r\n"},
		{"TFTP", "udp", "69", "\x00\x01files/images/k\x00octet\x00"},
	} {
		for _, from := range [][]net.IP{sources[:1], sources} {
			what := fmt.Sprintf("%s from %d sources", target.name, len(from))
			flood := floodFrom(from, target.network, l.addr()+":"+target.port, target.say)
			check(target.name)
			for _, c := range flood {
				_ = c.Close()
			}
			if len(flood) < 50 {
				t.Errorf("%s: only %d connections", what, len(flood))
			}
		}
	}
	stop := slowStreams(3, 100, "http://"+l.addr()+":7002/slow")
	d.until("requests beyond the limit of connections to backends", func() bool {
		return d.metric(`bootlab_lbproxy_rejected_total{balancer="web",reason="limit"}`) > 0
	})
	check("HTTP/2 streams")
	stop()
	if n := d.metric(`bootlab_server_descriptors{server="httpd"}`); n < 3 || n > 100 {
		t.Errorf("HTTP has %g descriptors", n)
	}
}

// floodFrom opens 400 connections and leaves them open.
func floodFrom(sources []net.IP, network, to, say string) (conns []net.Conn) {
	for i := range 400 {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		if ip := sources[i%len(sources)]; ip != nil {
			dialer.LocalAddr = &net.TCPAddr{IP: ip}
			if network == "udp" {
				dialer.LocalAddr = &net.UDPAddr{IP: ip}
			}
		}
		c, err := dialer.Dial(network, to)
		if err != nil {
			break // the backlog is full
		}
		_, _ = c.Write([]byte(say))
		conns = append(conns, c)
	}
	return conns
}

// slowStreams sends requests on HTTP/2 connections, again and again, until stop.
func slowStreams(conns, streams int, url string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range conns {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		for range streams {
			all.Go(func() {
				for ctx.Err() == nil {
					r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
					if resp, err := client.Do(r); err == nil {
						_ = resp.Body.Close()
					}
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
				}
			})
		}
	}
	return func() { cancel(); all.Wait() }
}

// TestDescriptorLimit: the limit of file descriptors is raised as far as it may be at start, by the Go runtime, which leaves one. The
// servers' shares follow it.
func TestDescriptorLimit(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "prlimit")
	d := start(t, newLab(t, "10.103.57"), "prlimit", "--nofile=256:4096")
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^Max open files +409[56] +4096 `).Match(limits) {
		t.Errorf("the limits are\n%s", limits)
	}
	if n := d.metric("bootlab_lbproxy_connections_limit"); n <= 256 {
		t.Errorf("balancers may have %g connections", n)
	}
}
