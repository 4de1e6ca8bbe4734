package lbproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// startKnot runs a Knot that answers id.server. CH TXT with a name.
func startKnot(t *testing.T, at netip.AddrPort, name string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	conf := fmt.Sprintf("server:\n  rundir: %s\n  identity: %q\n  listen: %s@%d\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\ndatabase:\n  storage: %s\n",
		dir, name, at.Addr(), at.Port(), dir)
	file := filepath.Join(dir, "knot.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command("knotd", "-c", file), at)
}

// startNginxUDP runs nginx' stream proxy in front of UDP servers, one answer to each datagram.
func startNginxUDP(t *testing.T, at netip.AddrPort, backends ...netip.AddrPort) {
	t.Helper()
	dir, ready := t.TempDir(), addr(t)
	var servers strings.Builder
	for _, b := range backends {
		fmt.Fprintf(&servers, "server %s; ", b)
	}
	conf := fmt.Sprintf(`load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; master_process off; user root; pid %s/pid; error_log stderr;
events { worker_connections 1024; }
stream { upstream u { %s }
  server { listen %s udp; proxy_pass u; proxy_responses 1; proxy_timeout 3s; }
  server { listen %s; return ready; } }`, dir, servers.String(), at, ready)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("nginx", "-p", dir, "-c", file), ready)
}

// identity asks a name server who it is, with one query; empty: it did not answer.
func identity(t *testing.T, at netip.AddrPort) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "kdig", "@"+at.Addr().String(), "-p", fmt.Sprint(at.Port()), "+short", "+retry=0", "+timeout=4", "id.server.", "CH", "TXT").Output()
	text := strings.Trim(strings.TrimSpace(string(out)), `"`)
	if strings.HasPrefix(text, ";;") {
		return ""
	}
	return text
}

// TestUDPDNS: Knot, kdig and dig on both sides; when one of two servers is killed no query of ours fails. nginx is in the same run.
func TestUDPDNS(t *testing.T) {
	t.Parallel()
	netns.Need(t, "knotd", "kdig", "dig", "nginx")
	one, two, ngx := addr(t), addr(t), addr(t)
	killed := startKnot(t, one, "one")
	startKnot(t, two, "two")
	startNginxUDP(t, ngx, one, two)
	b := with(balancer("dns", addr(t), one, two), func(b *lab.Balancer) {
		b.Mode, b.Responses, b.Check = lab.ModeUDP, 1, lab.Check{Kind: lab.CheckDNS, Interval: time.Hour}
	})
	r := newTestServer(t, Config{}, b)
	r.waitHealth(t, one, Up)
	r.waitHealth(t, two, Up)
	count := func(at netip.AddrPort) map[string]int {
		got := map[string]int{}
		for range 10 {
			got[identity(t, at)]++
		}
		return got
	}
	for name, at := range map[string]netip.AddrPort{"ours": listenOf(b), "nginx": ngx} {
		if got := count(at); got["one"] != 5 || got["two"] != 5 {
			t.Errorf("%s: %v, want 5 from each server", name, got)
		}
	}
	if out := run(t, "dig", "@"+listenOf(b).Addr().String(), "-p", fmt.Sprint(listenOf(b).Port()), "+short", "+tries=1", "id.server.", "CH", "TXT"); !strings.Contains(out, `"`) {
		t.Errorf("dig: %s", out)
	}
	_ = killed.Process.Kill()
	netns.WaitFor(t, "the end of its socket", func() bool {
		c, err := net.DialTimeout("tcp", one.String(), time.Minute)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	ours, theirs := count(listenOf(b)), count(ngx)
	if ours["two"] != 10 {
		t.Errorf("one of two servers was killed: %v of ours, %v of nginx", ours, theirs)
	}
	t.Logf("one of two servers killed: %d of 10 queries fail, nginx %d", 10-ours["two"], 10-theirs["two"])
}

// TestUDPSyslog: the lines of one logger reach two syslog servers in turn.
func TestUDPSyslog(t *testing.T) {
	t.Parallel()
	netns.Need(t, "logger")
	one, two := serveUDP(t, "one"), serveUDP(t, "two")
	b := udpBalancer(t, 0, one, two)
	newTestServer(t, Config{}, b)
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line\n", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "logger", "-n", listenOf(b).Addr().String(), "-P", fmt.Sprint(listenOf(b).Port()), "-d", "-f", file)
	netns.WaitFor(t, "all lines", func() bool { return one.got.Load()+two.got.Load() == 50 })
	if n := one.got.Load(); n < 20 || n > 30 {
		t.Errorf("one of two servers got %d of 50 lines", n)
	}
}
