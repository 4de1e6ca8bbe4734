package lbproxy

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// startNginxStream runs nginx as a TCP proxy that sends a PROXY header; it knows version 1 only.
func startNginxStream(t testing.TB, at, to netip.AddrPort) {
	t.Helper()
	dir := t.TempDir()
	conf := fmt.Sprintf(`daemon off; master_process off; user root; pid %[1]s/pid; error_log stderr;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
events { worker_connections 512; }
stream { server { listen %[2]s; proxy_pass %[3]s; proxy_protocol on; } }`, dir, at, to)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("nginx", "-p", dir, "-c", file), at)
}

// TestProxyHeaderOnBothSides has nginx in front, which sends version 1, or HAProxy, which sends either, and behind nginx or HAProxy, which read
// ours. The client's address passes through all of them.
func TestProxyHeaderOnBothSides(t *testing.T) {
	t.Parallel()
	netns.Need(t, "nginx", "haproxy", "curl")
	ngx, hap := addr(t), addr(t)
	startNginx(t, ngx, fmt.Sprintf(`listen %s proxy_protocol; location / { return 200 "$proxy_protocol_addr"; }`, ngx))
	startHAProxy(t, hap, fmt.Sprintf("frontend f\n  mode http\n  bind %s accept-proxy\n  http-request return status 200 content-type text/plain lf-string \"%%[src]\"\n", hap))
	for _, front := range []string{"nginx", "send-proxy", "send-proxy-v2"} {
		for name, behind := range map[string]netip.AddrPort{"nginx": ngx, "haproxy": hap} {
			for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
				for _, version := range []int{1, 2} {
					t.Run(fmt.Sprintf("%s/%s/v%d/%s", front, mode, version, name), func(t *testing.T) {
						b := with(balancer("b", addr(t), behind), func(b *lab.Balancer) {
							b.Mode, b.SendProxy = mode, version
							b.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/16")}
						})
						newTestServer(t, Config{}, b)
						at := addr(t)
						if front == "nginx" {
							startNginxStream(t, at, listenOf(b))
						} else {
							startHAProxy(t, at, fmt.Sprintf("listen l\n  mode tcp\n  bind %s\n  server us %s %s\n", at, b.Listen, front))
						}
						if got := run(t, "curl", "-s", "--interface", "127.99.0.8", "http://"+at.String()+"/"); got != "127.99.0.8" {
							t.Errorf("the client is seen as %q, want 127.99.0.8", got)
						}
					})
				}
			}
		}
	}
}

// sClient runs openssl s_client with one HTTP request. It returns all that it prints.
func sClient(t testing.TB, at netip.AddrPort, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", append([]string{"s_client", "-connect", at.String(), "-ign_eof"}, args...)...)
	cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: one.lab\r\nConnection: close\r\n\r\n")
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestOpenSSL has openssl s_client speak TLS through a balancer that passes it on, and with one that ends it: names, protocols, sessions that
// are resumed, and old versions.
func TestOpenSSL(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl", "nginx")
	dir := t.TempDir()
	one, other := filepath.Join(dir, "one.pem"), filepath.Join(dir, "other.pem")
	writeCertificate(t, one, "one.lab", false)
	writeCertificate(t, other, "other.lab", false)
	tlsNginx := func(certificate, text string) netip.AddrPort {
		at := addr(t)
		startNginx(t, at, fmt.Sprintf(`listen %s ssl http2; ssl_certificate %[2]s; ssl_certificate_key %[2]s; ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
ssl_ciphers ALL:@SECLEVEL=0; ssl_session_cache shared:s:1m; location / { return 200 "%[3]s $ssl_protocol"; }`, at, certificate, text))
		return at
	}
	shared := addr(t)
	passes := with(balancer("one", shared, tlsNginx(one, "passed on")), func(b *lab.Balancer) { b.Match.SNI = []string{"one.lab"} })
	rest := balancer("rest", shared, tlsNginx(other, "the default"))
	plain := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ended") })
	ends := with(httpBalancer("ends", addr(t), plain), func(b *lab.Balancer) { b.Certificates = []string{one, other} })
	newTestServer(t, Config{}, passes, rest, ends)
	old := []string{"-cipher", "ALL:@SECLEVEL=0"}
	for _, tt := range []struct {
		name string
		at   netip.AddrPort
		args []string
		want []string
	}{
		{"passed on by its name", shared, []string{"-servername", "one.lab", "-alpn", "http/1.1"}, []string{"subject=CN = one.lab", "ALPN protocol: http/1.1", "passed on TLSv1.3"}},
		{"h2 is the backend's", shared, []string{"-servername", "one.lab", "-alpn", "h2"}, []string{"ALPN protocol: h2"}},
		{"another name", shared, []string{"-servername", "two.lab"}, []string{"subject=CN = other.lab", "the default TLSv1.3"}},
		{"no name", shared, []string{"-noservername"}, []string{"subject=CN = other.lab", "the default TLSv1.3"}},
		{"TLS 1.2", shared, []string{"-servername", "one.lab", "-tls1_2"}, []string{"passed on TLSv1.2"}},
		{"TLS 1.1", shared, append(old, "-servername", "one.lab", "-tls1_1"), []string{"passed on TLSv1.1"}},
		{"TLS 1.0", shared, append(old, "-servername", "one.lab", "-tls1"), []string{"passed on TLSv1"}},
		{"ended by its name", listenOf(ends), []string{"-servername", "other.lab", "-alpn", "http/1.1"}, []string{"subject=CN = other.lab", "ALPN protocol: http/1.1", "ended"}},
		{"ended, no name", listenOf(ends), []string{"-noservername"}, []string{"subject=CN = one.lab", "ended"}},
		{"ended, TLS 1.2", listenOf(ends), []string{"-servername", "one.lab", "-tls1_2"}, []string{"Protocol  : TLSv1.2", "ended"}},
		{"ended, TLS 1.1 is refused", listenOf(ends), append(old, "-servername", "one.lab", "-tls1_1"), []string{"alert protocol version"}},
	} {
		out := sClient(t, tt.at, tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, out)
			}
		}
	}
	for name, at := range map[string]netip.AddrPort{"passed on": shared, "ended": listenOf(ends)} {
		for _, version := range []string{"-tls1_2", "-tls1_3"} {
			session := filepath.Join(dir, name+version)
			if out := sClient(t, at, "-servername", "one.lab", version, "-sess_out", session); !strings.Contains(out, "New, TLSv1") {
				t.Errorf("%s %s: the first is no new session:\n%s", name, version, out)
			}
			if out := sClient(t, at, "-servername", "one.lab", version, "-sess_in", session); !strings.Contains(out, "Reused, TLSv1") || !strings.Contains(out, name) {
				t.Errorf("%s %s: the session is not resumed:\n%s", name, version, out)
			}
		}
	}
}

// TestEtcd kills one of three etcd members while a client watches, and another one writes, both through a balancer: no event is lost.
func TestEtcd(t *testing.T) {
	t.Parallel()
	netns.Need(t, "etcd", "etcdctl")
	var clients, peers []netip.AddrPort
	cluster := ""
	for i := range 3 {
		clients, peers = append(clients, addr(t)), append(peers, addr(t))
		cluster += fmt.Sprintf(",m%d=http://%s", i, peers[i])
	}
	var members []*exec.Cmd
	for i := range 3 {
		cmd := exec.Command("etcd", "--name", fmt.Sprint("m", i), "--data-dir", t.TempDir(), "--initial-cluster", cluster[1:],
			"--initial-advertise-peer-urls", "http://"+peers[i].String(), "--listen-peer-urls", "http://"+peers[i].String(),
			"--advertise-client-urls", "http://"+clients[i].String(), "--listen-client-urls", "http://"+clients[i].String())
		members = append(members, start(t, cmd, clients[i]))
	}
	b := with(balancer("etcd", addr(t), clients...), func(b *lab.Balancer) { b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Second} })
	r := newTestServer(t, Config{}, b)
	etcdctl := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "etcdctl", append([]string{"--endpoints=http://" + listenOf(b).String(), "--command-timeout=60s"}, args...)...)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		return cmd
	}
	put := func(n int) {
		t.Helper()
		key := fmt.Sprintf("k%03d", n) // a put that is repeated after an error has the same value
		netns.WaitFor(t, "put of "+key, func() bool { return etcdctl("put", key, key).Run() == nil })
	}
	put(0)
	watch := etcdctl("watch", "k", "--prefix", "--rev=1")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := make(map[string]bool)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			mu.Lock()
			seen[lines.Text()] = true
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = watch.Process.Kill(); <-done; _ = watch.Wait() })
	has := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return seen[fmt.Sprintf("k%03d", n)] }
	}
	netns.WaitFor(t, "the first event", has(0))
	const puts = 30
	for n := 1; n < puts; n++ {
		if n == 10 {
			_ = members[r.watched(t, clients)].Process.Kill()
		}
		put(n)
	}
	for n := range puts {
		netns.WaitFor(t, fmt.Sprintf("event %d", n), has(n))
	}
}

// watched returns which of the backends has a connection.
func (r *testServer) watched(t *testing.T, backends []netip.AddrPort) (at int) {
	netns.WaitFor(t, "a connection", func() bool {
		for _, m := range r.Status()[0].Backends {
			if m.Connections > 0 {
				at = slices.Index(backends, m.Addr)
				return true
			}
		}
		return false
	})
	return at
}
