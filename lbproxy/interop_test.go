package lbproxy

import (
	"bytes"
	"context"
	"errors"
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
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// start runs a server program until the test ends and waits until ready accepts connections.
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
	conf := "global\n  maxconn 2000\n  nbthread 1\ndefaults\n  timeout connect 20s\n  timeout client 60s\n  timeout server 60s\n  timeout check 20s\n" + sections
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
						b.Check = lab.Check{Kind: lab.CheckHTTP} // the server refuses checks without a PROXY header
					})
					r := newTestServer(t, Config{}, b)
					r.waitHealth(t, receiver.at, Up)
					got := run(t, "curl", "-s", "--interface", "127.99.0.7", "http://"+b.Listen.String()+"/")
					if got != "127.99.0.7 8000" {
						t.Errorf("%s saw the client %q, want 127.99.0.7 8000", receiver.name, got)
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
			newTestServer(t, Config{}, b)
			startHAProxy(t, hap, fmt.Sprintf("listen l\n  mode tcp\n  bind %s\n  server us %s %s check\n", hap, b.Listen, version))
			if got := run(t, "curl", "-s", "--interface", "127.99.0.8", "http://"+hap.String()+"/"); got != "127.99.0.8" {
				t.Errorf("client seen as %q, want 127.99.0.8", got)
			}
			// The header of an untrusted peer is read as a request, an invalid one. The request after it is not read, so curl
			// may have its status and see a reset.
			got, _ := exec.CommandContext(t.Context(), "curl", "-s", "-m", "60", "--interface", "127.99.0.9", "--haproxy-protocol", "-o", "/dev/null",
				"-w", "%{http_code}", "http://"+b.Listen.String()+"/").Output()
			if string(got) != "400" {
				t.Errorf("the header of an untrusted peer led to status %s, want 400", got)
			}
		})
	}
}

// TestOnDown has a backend whose check fails while it still serves connections. Where on_down is close they end, as with
// HAProxy's on-marked-down shutdown-sessions.
func TestOnDown(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy")
	back, hap := serveTCP(t, nameServer("b")), addr(t)
	status := netip.AddrPortFrom(back.Addr(), 1936)
	stop := serveTCPAt(t, status, nameServer("status"))
	check := lab.Check{Kind: lab.CheckTCP, Port: status.Port(), Interval: 100 * time.Millisecond, Rise: 1, Fall: 2}
	closing := with(balancer("close", addr(t), back), func(b *lab.Balancer) { b.Check, b.OnDown = check, lab.OnDownClose })
	keeping := with(balancer("keep", addr(t), back), func(b *lab.Balancer) { b.Check = check })
	r := newTestServer(t, Config{}, closing, keeping)
	r.waitHealth(t, back, Up)
	startHAProxy(t, hap, fmt.Sprintf("listen l\n  mode tcp\n  bind %s\n  server s %s check port %d inter 1s fall 2 on-marked-down shutdown-sessions\n", hap, back, status.Port()))
	open := map[string]*net.TCPConn{"close": dial(t, closing.Listen), "HAProxy": dial(t, hap), "keep": dial(t, keeping.Listen)}
	for _, c := range open {
		readLine(t, c)
	}
	stop()
	for _, name := range []string{"close", "HAProxy"} {
		if _, err := open[name].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: read = %v once the backend is down, want the end", name, err)
		}
	}
	_, _ = io.WriteString(open["keep"], "still\n")
	if got := readLine(t, open["keep"]); got != "still" {
		t.Errorf("keep: %q once the backend is down", got)
	}
}

// TestTLSCheck checks servers that refuse the check's handshake but speak TLS, as HAProxy's ssl-hello-chk does.
func TestTLSCheck(t *testing.T) {
	t.Parallel()
	netns.Need(t, "haproxy", "openssl")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	run(t, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x", "-keyout", key, "-out", cert)
	var bs []*lab.Balancer
	sections := "listen l\n  mode tcp\n  option ssl-hello-chk\n"
	for name, args := range map[string]string{
		"client certificate": "-Verify 1", "TLS 1.0": "-tls1 -cipher DEFAULT@SECLEVEL=0", "RSA key exchange": "-tls1_2 -cipher AES128-SHA", "TLS 1.3": "-tls1_3",
	} {
		at := addr(t)
		start(t, exec.Command("openssl", append([]string{"s_server", "-accept", at.String(), "-cert", cert, "-key", key, "-quiet"}, strings.Fields(args)...)...), at)
		bs = append(bs, with(balancer(name, addr(t), at), func(b *lab.Balancer) {
			b.Check = lab.Check{Kind: lab.CheckTLS, Interval: 200 * time.Millisecond, Rise: 1}
		}))
		sections += fmt.Sprintf("  server %s %s check inter 200ms rise 1\n", strings.ReplaceAll(name, " ", "-"), at)
	}
	plain := serveTCP(t, nameServer("SSH-2.0-x")) // down for both
	bs = append(bs, with(balancer("plain", addr(t), plain), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTLS }))
	sections += fmt.Sprintf("  server plain %s check inter 200ms\n", plain)
	r := newTestServer(t, Config{}, bs...)
	for _, b := range bs {
		want := Up
		if b.Name == "plain" {
			want = Down
		}
		t.Run(b.Name, func(t *testing.T) { r.waitHealth(t, b.Backends[0].Addr, want) })
	}
	hap := addr(t)
	stats := filepath.Join(dir, "stats")
	startHAProxy(t, hap, fmt.Sprintf("%s  bind %s\nglobal\n  stats socket %s\n", sections, hap, stats))
	netns.WaitFor(t, "HAProxy: all up but one", func() bool {
		c, err := net.Dial("unix", stats)
		if err != nil {
			return false
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "show stat\n")
		all, _ := io.ReadAll(c)
		return strings.Count(string(all), ",UP,1,") == len(bs)-1 && strings.Count(string(all), ",DOWN,1,") == 1
	})
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
	r := newTestServer(t, Config{}, bs...)
	for _, b := range bs {
		r.waitHealth(t, b.Backends[0].Addr, Up)
	}
	for name, cluster := range map[string]string{"api.east.lab": "east", "console.apps.east.lab": "east", "oauth.apps.west.lab": "west"} {
		resolve := fmt.Sprintf("%s:%d:%s", name, at.Port(), at.Addr())
		if got := run(t, "curl", "-sk", "--resolve", resolve, fmt.Sprintf("https://%s:%d/", name, at.Port())); got != cluster+" "+name {
			t.Errorf("%s reached %q, want cluster %s", name, got, cluster)
		}
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", at.String(), "-servername", name)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "CN = "+cluster) {
			t.Errorf("openssl: %s got another certificate than CN = %s:\n%s", name, cluster, out)
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
				r := newTestServer(t, Config{}, b)
				out := run(t, "wrk", "-t1", "-c32", "-d1s", "--timeout", "60s", "-H", header, "http://"+b.Listen.String()+"/")
				for _, bad := range []string{"Non-2xx", "Socket errors: connect"} {
					if strings.Contains(out, bad) {
						t.Errorf("wrk reports errors:\n%s", out)
					}
				}
				if !strings.Contains(out, "Requests/sec") {
					t.Errorf("wrk measured nothing:\n%s", out)
				}
				netns.WaitFor(t, "all connections gone", func() bool {
					s := r.Status()[0]
					return s.Connections == 0 && s.Backends[0].Connections == 0 && s.Backends[1].Connections == 0
				})
				rejected := testutil.CollectAndCount(r.metrics.rejected)
				if rejected > 1 { // the series without a balancer, which the harness reads
					t.Errorf("%d reasons of rejected connections, want none", rejected)
				}
			})
		}
	}
}

// TestFailover loses one of two machines: its server process, or its cable. Clients that connect afterwards all get an
// answer, and their connections have the backend checked, which marks it down: the interval of its check is an hour.
func TestFailover(t *testing.T) {
	netns.Need(t, "root", "nginx", "ip")
	tests := []struct {
		name string
		lose func(t *testing.T, c *netns.Client, server *exec.Cmd, at netip.AddrPort)
	}{
		{"killed", func(t *testing.T, _ *netns.Client, server *exec.Cmd, at netip.AddrPort) {
			_ = server.Process.Kill()
			netns.WaitFor(t, "connection refused", func() bool {
				_, err := readAll(at)
				return errors.Is(err, syscall.ECONNREFUSED)
			})
		}},
		{"cut", func(t *testing.T, c *netns.Client, _ *exec.Cmd, _ netip.AddrPort) {
			netns.Run(t, "ip", "link", "set", c.NIC, "down") // a request on a kept-alive connection is not acknowledged
		}},
	}
	for i, test := range tests {
		for k, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
			t.Run(test.name+"/"+string(mode), func(t *testing.T) {
				f := newFailover(t, 80+2*i+k, mode)
				for range 4 { // each backend has one kept-alive connection afterwards
					if err := f.get(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				lost := f.backends[0]
				test.lose(t, f.machines[0], f.servers[0], lost)
				const clients = 50
				ctx, cancel := context.WithCancel(t.Context())
				var answered, failed atomic.Int64
				var tasks sync.WaitGroup
				for range clients {
					tasks.Go(func() {
						err := f.get(ctx)
						switch {
						case err == nil:
							answered.Add(1)
						case ctx.Err() == nil:
							failed.Add(1)
							t.Errorf("after the loss of %s: %v", lost, err)
						}
					})
				}
				netns.WaitFor(t, "all clients answered", func() bool {
					return answered.Load()+failed.Load() == clients
				})
				f.waitHealth(t, lost, Down)
				cancel()
				tasks.Wait()
			})
		}
	}
}

// TestHTTPCut: a request on a kept-alive connection to a machine that was cut off gets its answer from another once the kernel gives the
// connection up (TCP_USER_TIMEOUT). Nothing else would notice: there are no checks.
func TestHTTPCut(t *testing.T) {
	netns.Need(t, "root", "nginx", "ip")
	f := newFailover(t, 84, lab.ModeHTTP, func(b *lab.Balancer) {
		b.Check, b.Backends[1].Backup, b.Timeouts.Server = lab.Check{Kind: lab.CheckNone}, true, time.Hour
	})
	if err := f.get(t.Context()); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "ip", "link", "set", f.machines[0].NIC, "down")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.get(ctx); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

// TestHTTPCutAtConnects: a machine that is cut off, and that failed connects have ejected, has lost what it got: a GET on a kept-alive
// connection gets its answer from another machine, though no check has failed and the kernel has not given the connection up.
func TestHTTPCutAtConnects(t *testing.T) {
	netns.Need(t, "root", "nginx", "ip")
	f := newFailover(t, 85, lab.ModeTCP, func(b *lab.Balancer) { b.Check = lab.Check{Kind: lab.CheckNone} })
	b := with(httpBalancer("cut", netip.AddrPortFrom(f.listen.Addr(), 81), f.backends...), func(b *lab.Balancer) {
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Hour, Timeout: time.Second, Rise: 1, Fall: 1000}
		b.Timeouts.Server = 20 * time.Second
	})
	r := newTestServer(t, Config{Unacked: time.Hour}, b)
	const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for _, m := range f.backends { // a kept-alive connection to each
		r.waitHealth(t, m, Up)
		_ = ask(t, b.Listen, get)
	}
	netns.Run(t, "ip", "link", "set", f.machines[0].NIC, "down")
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() {
			if got := ask(t, b.Listen, get); !strings.HasSuffix(got, "ok") {
				t.Errorf("a client got %q", got)
			}
		})
		time.Sleep(50 * time.Millisecond)
	}
	clients.Wait()
	if down := r.recorder.of(event.BackendDown); len(down) == 0 || !strings.Contains(down[0].Err, "no answer to") {
		t.Errorf("events %+v, want one of failed connects", down)
	}
}

// A failover is a balancer over two machines with nginx.
type failover struct {
	*testServer
	listen   netip.AddrPort
	machines []*netns.Client
	servers  []*exec.Cmd
	backends []netip.AddrPort
}

// newFailover makes the network 10.net.0.0/24.
func newFailover(t *testing.T, net int, mode lab.BalanceMode, change ...func(*lab.Balancer)) *failover {
	segment := netns.NewSegment(t, fmt.Sprintf("10.%d.0.1/24", net))
	f := &failover{listen: netip.MustParseAddrPort(fmt.Sprintf("10.%d.0.1:80", net))}
	for k := range 2 {
		at := netip.MustParseAddrPort(fmt.Sprintf("10.%d.0.%d:80", net, 2+k))
		c := segment.NewClient(t)
		netns.Run(t, "ip", "-n", c.Name, "addr", "add", at.Addr().String()+"/24", "dev", "eth0")
		cmd := c.Command(context.Background(), "nginx", nginx(t, fmt.Sprintf(`listen %s; location / { return 200 "ok"; }`, at))...)
		f.servers = append(f.servers, start(t, cmd, at))
		f.machines, f.backends = append(f.machines, c), append(f.backends, at)
	}
	b := with(balancer("web", f.listen, f.backends...), func(b *lab.Balancer) {
		b.Mode = mode
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Hour, FastInterval: 100 * time.Millisecond, Timeout: 2 * time.Second}
		for _, c := range change {
			c(b)
		}
	})
	f.testServer = newTestServer(t, Config{Unacked: time.Second}, b)
	if b.Check.Kind != lab.CheckNone {
		f.waitHealth(t, f.backends[0], Up)
		f.waitHealth(t, f.backends[1], Up)
	}
	return f
}

// get makes one request on a new connection.
func (f *failover) get(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.listen.String()+"/", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", resp.Status, body)
	}
	return err
}
