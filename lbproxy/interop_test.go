package lbproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// start runs a stranger's server until the test ends and waits until ready accepts connections.
func start(t testing.TB, cmd *exec.Cmd, ready netip.AddrPort) *exec.Cmd {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
	})
	netns.WaitFor(t, fmt.Sprintf("%s accepts on %s", cmd.Args, ready), func() bool {
		select {
		case <-done:
			t.Fatalf("%s ended: %s", cmd.Args, out.String())
		default:
		}
		c, err := net.DialTimeout("tcp", ready.String(), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return cmd
}

// nginx writes a config of one server block and returns the arguments that run it.
func nginx(t testing.TB, server string) []string {
	t.Helper()
	dir := t.TempDir()
	conf := fmt.Sprintf(`daemon off; master_process off; user root; pid %[1]s/pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000;
  client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
  server { %[2]s }
}`, dir, server)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-p", dir, "-c", file}
}

func startNginx(t testing.TB, at netip.AddrPort, server string) {
	t.Helper()
	start(t, exec.Command("nginx", nginx(t, server)...), at)
}

func startHAProxy(t testing.TB, at netip.AddrPort, sections string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	conf := "global\n  maxconn 2000\ndefaults\n  timeout connect 20s\n  timeout client 60s\n  timeout server 60s\n" + sections
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("haproxy", "-db", "-f", file), at)
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestSendProxyToNginxAndHAProxy(t *testing.T) {
	t.Parallel()
	netns.Need(t, "nginx", "haproxy", "curl")
	ngx, hap := addr(t), addr(t)
	startNginx(t, ngx, fmt.Sprintf(`listen %s proxy_protocol; location / { return 200 "$proxy_protocol_addr $proxy_protocol_server_port"; }`, ngx))
	startHAProxy(t, hap, fmt.Sprintf("frontend f\n  mode http\n  bind %s accept-proxy\n  http-request return status 200 content-type text/plain lf-string \"%%[src] %%[dst_port]\"\n", hap))
	for _, receiver := range []struct {
		name string
		at   netip.AddrPort
	}{{"nginx", ngx}, {"haproxy", hap}} {
		for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
			for _, version := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%s/v%d", receiver.name, mode, version), func(t *testing.T) {
					t.Parallel()
					b := with(balancer("b", addr(t), receiver.at), func(b *lab.Balancer) {
						b.Mode, b.SendProxy = mode, version
						b.Check = lab.Check{Kind: lab.CheckHTTP} // must send a header too, or it is refused
					})
					r := newRig(t, Config{}, b)
					r.condition(t, receiver.at, Up)
					got := run(t, "curl", "-s", "--interface", "127.99.0.7", "http://"+b.Listen.String()+"/")
					if got != "127.99.0.7 8000" {
						t.Errorf("%s was told %q, want 127.99.0.7 8000", receiver.name, got)
					}
				})
			}
		}
	}
}

func TestAcceptProxyFromHAProxy(t *testing.T) {
	t.Parallel()
	netns.Need(t, "nginx", "haproxy", "curl")
	for _, version := range []string{"send-proxy", "send-proxy-v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ngx, hap := addr(t), addr(t)
			startNginx(t, ngx, fmt.Sprintf(`listen %s; location / { return 200 "$http_x_forwarded_for"; }`, ngx))
			b := with(httpBalancer("b", addr(t), ngx), func(b *lab.Balancer) {
				b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/16")}
			})
			newRig(t, Config{}, b)
			startHAProxy(t, hap, fmt.Sprintf("listen l\n  mode tcp\n  bind %s\n  server us %s %s check\n", hap, b.Listen, version))
			if got := run(t, "curl", "-s", "--interface", "127.99.0.8", "http://"+hap.String()+"/"); got != "127.99.0.8" {
				t.Errorf("client seen as %q, want 127.99.0.8", got)
			}
			// A stranger's header is not interpreted: it is what it looks like, a broken request.
			// The request that follows is not read any more: where it comes late, curl has its status, and is reset.
			got, _ := exec.CommandContext(t.Context(), "curl", "-s", "-m", "60", "--interface", "127.99.0.9", "--haproxy-protocol", "-o", "/dev/null",
				"-w", "%{http_code}", "http://"+b.Listen.String()+"/").Output()
			if string(got) != "400" {
				t.Errorf("a stranger's header led to status %s, want 400", got)
			}
		})
	}
}

func TestClustersShareAnAddress(t *testing.T) {
	t.Parallel()
	netns.Need(t, "nginx", "curl", "openssl")
	dir := t.TempDir()
	at := addr(t)
	var bs []*lab.Balancer
	for _, cluster := range []string{"east", "west"} {
		cert, key := filepath.Join(dir, cluster+".pem"), filepath.Join(dir, cluster+".key")
		run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
			"-subj", "/CN="+cluster, "-keyout", key, "-out", cert)
		back := addr(t)
		startNginx(t, back, fmt.Sprintf(`listen %s ssl http2; ssl_certificate %s; ssl_certificate_key %s; location / { return 200 "%s $ssl_server_name"; }`, back, cert, key, cluster))
		bs = append(bs, with(balancer(cluster, at, back), func(b *lab.Balancer) {
			b.Match.SNI = []string{"api." + cluster + ".lab", "*.apps." + cluster + ".lab"}
			b.Check = lab.Check{Kind: lab.CheckHTTPS, Interval: time.Second}
		}))
	}
	r := newRig(t, Config{}, bs...)
	for _, b := range bs {
		r.condition(t, b.Backends[0].Addr, Up)
	}
	for name, cluster := range map[string]string{"api.east.lab": "east", "console.apps.east.lab": "east", "oauth.apps.west.lab": "west"} {
		resolve := fmt.Sprintf("%s:%d:%s", name, at.Port(), at.Addr())
		if got := run(t, "curl", "-sk", "--resolve", resolve, fmt.Sprintf("https://%s:%d/", name, at.Port())); got != cluster+" "+name {
			t.Errorf("%s reached %q, want cluster %s", name, got, cluster)
		}
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", at.String(), "-servername", name)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "CN = "+cluster) {
			t.Errorf("openssl: %s showed another certificate than CN = %s:\n%s", name, cluster, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "curl", "-sk", "https://"+at.String()+"/")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("a client without a server name reached %q, want a reset", out)
	}
}

func TestWrk(t *testing.T) {
	netns.Need(t, "nginx", "wrk")
	one, two := addr(t), addr(t)
	for _, at := range []netip.AddrPort{one, two} {
		startNginx(t, at, fmt.Sprintf(`listen %s backlog=4096; location / { return 200 "%01024d"; }`, at, 0))
	}
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		for _, header := range []string{"Connection: keep-alive", "Connection: close"} {
			t.Run(string(mode)+"/"+header, func(t *testing.T) {
				b := with(balancer("b", addr(t), one, two), func(b *lab.Balancer) { b.Mode = mode })
				r := newRig(t, Config{}, b)
				out := run(t, "wrk", "-t1", "-c32", "-d1s", "-H", header, "http://"+b.Listen.String()+"/")
				for _, bad := range []string{"Non-2xx", "Socket errors: connect"} {
					if strings.Contains(out, bad) {
						t.Errorf("wrk saw trouble:\n%s", out)
					}
				}
				if !strings.Contains(out, "Requests/sec") {
					t.Errorf("wrk measured nothing:\n%s", out)
				}
				netns.WaitFor(t, "all connections gone", func() bool {
					s := r.States()[0]
					return s.Connections == 0 && s.Backends[0].Connections == 0 && s.Backends[1].Connections == 0
				})
				rejected := testutil.CollectAndCount(r.metrics.rejected)
				if rejected > 1 { // the empty series that the rig asks for
					t.Errorf("%d reasons to turn clients away, want none", rejected)
				}
			})
		}
	}
}

// TestFailover loses one of two machines under 200 new connections a second: its process, then its cable.
func TestFailover(t *testing.T) {
	netns.Need(t, "root", "nginx", "ip")
	tests := []struct {
		name string
		lose func(t *testing.T, c *netns.Client, server *exec.Cmd)
	}{
		{"killed", func(_ *testing.T, _ *netns.Client, server *exec.Cmd) { _ = server.Process.Kill() }},
		{"cut", func(t *testing.T, c *netns.Client, _ *exec.Cmd) { netns.Run(t, "ip", "link", "set", c.NIC, "down") }},
	}
	for i, test := range tests {
		for k, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
			t.Run(test.name+"/"+string(mode), func(t *testing.T) {
				netns.Tries(t, 3, func(try int) string { return failover(t, 80+4*try+2*i+k, mode, test.lose) })
			})
		}
	}
}

// failover loses one of two machines in the network 10.net.0.0/24, and complains if clients noticed.
func failover(t *testing.T, net int, mode lab.BalanceMode, lose func(*testing.T, *netns.Client, *exec.Cmd)) string {
	segment := netns.NewSegment(t, fmt.Sprintf("10.%d.0.1/24", net))
	listen := netip.MustParseAddrPort(fmt.Sprintf("10.%d.0.1:80", net))
	b := with(balancer("web", listen), func(b *lab.Balancer) {
		b.Mode = mode
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	})
	var machines []*netns.Client
	var servers []*exec.Cmd
	for k := range 2 {
		at := netip.MustParseAddrPort(fmt.Sprintf("10.%d.0.%d:80", net, 2+k))
		c := segment.NewClient(t)
		netns.Run(t, "ip", "-n", c.Name, "addr", "add", at.Addr().String()+"/24", "dev", "eth0")
		cmd := c.Command(context.Background(), "nginx", nginx(t, fmt.Sprintf(`listen %s; location / { return 200 "ok"; }`, at))...)
		servers = append(servers, start(t, cmd, at))
		machines = append(machines, c)
		b.Backends = append(b.Backends, lab.Backend{Name: fmt.Sprintf("worker-%d", k), Addr: at})
	}
	r := newRig(t, Config{}, b)
	r.condition(t, b.Backends[0].Addr, Up)
	clearRequest := load(listen, 200, time.Second)
	var hit loadResult
	var under sync.WaitGroup
	under.Go(func() { hit = load(listen, 200, 3*time.Second) })
	time.Sleep(time.Second)
	lose(t, machines[0], servers[0])
	under.Wait()
	r.condition(t, b.Backends[0].Addr, Down)
	// What is being answered at that moment is lost; on a busy machine that is more than one, and some are late anyway, all of them
	// while it stands still. A balancer that noticed by its checks alone would fail two seconds' half: a third of all requests.
	if hit.errors > 2+hit.requests/20 || hit.late > 20+hit.requests/5+6*clearRequest.late {
		return fmt.Sprintf("of %d requests %d failed and %d took over 200ms, want next to none", hit.requests, hit.errors, hit.late)
	}
	return ""
}

// A loadResult is what clients met with.
type loadResult struct {
	requests, errors int
	late             int // over 200 ms
}

// load makes rate new connections a second for a while, each for one request.
func load(at netip.AddrPort, rate int, d time.Duration) (met loadResult) {
	var bad, slow atomic.Int64
	var tasks sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < d; met.requests++ {
		<-tick.C
		tasks.Go(func() {
			began := time.Now()
			resp, err := client.Get("http://" + at.String() + "/")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if err != nil || resp.StatusCode != 200 {
				bad.Add(1)
			}
			if time.Since(began) > 200*time.Millisecond {
				slow.Add(1)
			}
		})
	}
	tasks.Wait()
	met.errors, met.late = int(bad.Load()), int(slow.Load())
	return met
}
