package interop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A member is an HTTP server whose health check passes or not.
type member struct{ sick atomic.Bool }

func newMember(t *testing.T, addr string) *member {
	t.Helper()
	m := &member{}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if m.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return m
}

// bind starts a BIND that is a secondary of the daemon for zones, on port 5353 of its address.
func (d *daemon) bind(t *testing.T, zones ...string) (ask func(args ...string) string) {
	t.Helper()
	netns.Need(t, "named", "dig")
	dir := t.TempDir()
	conf := fmt.Sprintf("options { directory %q; pid-file none; session-keyfile none; listen-on port 5353 { %s; }; listen-on-v6 { none; };\n"+
		"recursion no; notify no; max-refresh-time 3600; };\ncontrols {};\n", dir, d.addr)
	for _, z := range zones {
		conf += fmt.Sprintf("zone %q { type secondary; primaries { %s; }; file %q; };\n", z, d.addr, z)
	}
	writeFile(t, filepath.Join(dir, "named.conf"), conf)
	ctx, cancel := context.WithCancel(context.Background())
	var out output
	cmd := exec.CommandContext(ctx, "named", "-f", "-n", "1", "-c", filepath.Join(dir, "named.conf"))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("named:\n%s", tail(out.String()))
		}
	})
	return func(args ...string) string {
		b, _ := exec.Command("dig", append([]string{"@" + d.addr, "-p", "5353", "+short", "+tries=1", "+time=20"}, args...)...).Output()
		return strings.TrimSpace(string(b))
	}
}

// lines returns the lines of a text in order.
func lines(text string) string {
	all := strings.Fields(text)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestNamesFollowBackends: a name with health: true has the addresses of the backends whose checks pass, here and at a secondary; nothing
// listens for it. A drained member leaves; if all fail, all are answered. The names of DHCP clients reach the secondary.
func TestNamesFollowBackends(t *testing.T) {
	netns.Need(t, "dig", "udhcpc")
	t.Parallel()
	l := newLab(t, "10.124.1")
	var members [3]*member
	for i := range members {
		members[i] = newMember(t, fmt.Sprintf("127.0.124.%d:8101", i+1))
	}
	l.balancers = `  web:
    names: [web]
    health: true
    check: {kind: http, interval: 200ms, fast_interval: 200ms, rise: 1, fall: 1, timeout: 10s}
    backends: ["127.0.124.1:8101", "127.0.124.2:8101", "127.0.124.3:8101"]
`
	l.more = `dns:
  transfer: [NET.0/24]
  notify: ["NET.1:5353"]
  zones: {lab.test: {leases: transfer}, 1.124.10.in-addr.arpa: {leases: transfer}}
`
	l.write()
	d := start(t, l)
	atSecondary := d.bind(t, "lab.test", "1.124.10.in-addr.arpa")
	want := func(what, addrs string) {
		t.Helper()
		d.until(what, func() bool { return lines(d.dig("web.lab.test")) == addrs })
		d.until(what+" at the secondary", func() bool { return lines(atSecondary("web.lab.test")) == addrs })
	}
	want("all members", "127.0.124.1 127.0.124.2 127.0.124.3")
	members[0].sick.Store(true)
	want("the healthy ones", "127.0.124.2 127.0.124.3")
	serial := d.dig("lab.test", "SOA")
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if got := d.dig("lab.test", "SOA"); got != serial {
		t.Errorf("SOA %s after a reload, want %s", got, serial)
	}
	if out, err := d.bootlab("resolve", "web.lab.test"); err != nil || !strings.Contains(out, "2 of 3 backends of balancer web") {
		t.Errorf("resolve: %v\n%s", err, out)
	}
	if out, err := d.bootlab("backend", "drain", "web", "127.0.124.2"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	want("the one that is not drained", "127.0.124.3")
	members[2].sick.Store(true)
	want("all, as none is left", "127.0.124.1 127.0.124.2 127.0.124.3")
	for _, m := range members {
		m.sick.Store(false)
	}
	want("those that came back", "127.0.124.1 127.0.124.3")
	if s := d.status(); slices.ContainsFunc(s.Servers, func(v api.Server) bool { return strings.Contains(fmt.Sprint(v.Addrs), "invalid") }) {
		t.Errorf("a server listens on nothing: %+v", s.Servers)
	}

	m := d.machine(t, "02:00:7c:00:00:01")
	addr := m.leaseAs(t, "visitor")
	if addr == "" {
		t.Fatal("no lease")
	}
	d.until("the name of a DHCP client", func() bool { return d.dig("visitor.lab.test") == addr })
	d.until("its name at the secondary", func() bool { return atSecondary("visitor.lab.test") == addr })
	d.until("its reverse name at the secondary", func() bool { return atSecondary("-x", addr) == "visitor.lab.test." })
}

// leaseAs is lease for a machine that sends a host name.
func (m *machine) leaseAs(t *testing.T, name string) string {
	t.Helper()
	m.d.file("udhcpc.sh", []byte(udhcpcScript))
	script := filepath.Join(m.d.dir, "udhcpc.sh")
	if err := exec.Command("chmod", "755", script).Run(); err != nil {
		t.Fatal(err)
	}
	out, _ := m.run("udhcpc", "-i", "eth0", "-n", "-q", "-t", "10", "-T", "2", "-x", "hostname:"+name, "-s", script)
	_, addr, _ := strings.Cut(out, "bound ")
	return strings.TrimSpace(addr)
}

// TestNameOfFirstClient: the name that a DHCP client sends is that of the first one that has it, while it has a lease, also over a restart and
// while its firmware sends no name. A later client of that name gets its address, no name, and one event.
func TestNameOfFirstClient(t *testing.T) {
	netns.Need(t, "dig", "udhcpc")
	t.Parallel()
	l := newLab(t, "10.124.32")
	l.write()
	d := start(t, l)
	first, later := d.machine(t, "02:00:7c:00:00:11"), d.machine(t, "02:00:7c:00:00:12")
	one := first.leaseAs(t, "visitor")
	if one == "" {
		t.Fatal("no lease")
	}
	name, reverse := "visitor.lab.test", "visitor.lab.test."
	d.until("the name of the first client", func() bool { return d.dig(name) == one })
	same := func(when string) string {
		t.Helper()
		two := later.leaseAs(t, "visitor")
		if two == "" || two == one {
			t.Fatalf("%s the later client leases %q, the first has %s", when, two, one)
		}
		if got := d.dig(name); got != one {
			t.Errorf("%s %s is %q, want the %s of the first client (the later one has %s)", when, name, got, one, two)
		}
		if got := d.dig("-x", two); got != "" {
			t.Errorf("%s %s is %q, want no name", when, two, got)
		}
		if got := d.dig("-x", one); got != reverse {
			t.Errorf("%s %s is %q, want %s", when, one, got, reverse)
		}
		return two
	}
	two := same("at first")
	if got := first.lease(t); got != one {
		t.Errorf("without a name the first client leases %q, want %s", got, one)
	}
	same("after a lease without a name")
	d.kill()
	d.start()
	same("after a restart")
	if n := strings.Count(d.log.String(), "dhcp_name_conflict"); n != 1 {
		t.Errorf("%d lines of the log have dhcp_name_conflict, want 1:\n%s", n, tail(d.log.String()))
	}
	d.shows("visitor", "leases")
	if out, err := d.bootlab("leases", "release", one); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := later.leaseAs(t, "visitor"); got != two {
		t.Fatalf("the later client leases %q, want its %s", got, two)
	}
	d.until("the name is that of the client that still asks for it", func() bool { return d.dig(name) == two && d.dig("-x", two) == reverse })
}

// TestFQDNOption: a client that sends its name in option 81 reads there the name by which it is found, or that it has none: another client or
// the lab has it.
func TestFQDNOption(t *testing.T) {
	netns.Need(t, "dig", "udhcpc")
	t.Parallel()
	l := newLab(t, "10.124.33")
	l.write()
	d := start(t, l)
	d.file("fqdn.sh", []byte("#!/bin/sh\ncase $1 in bound) ip addr add $ip/24 dev $interface; echo \"got $ip $opt81\";; esac\n"))
	script := filepath.Join(d.dir, "fqdn.sh")
	netns.Run(t, "chmod", "755", script)
	const none = "0affff" // N, and O: it asked for an update
	for i, tt := range []struct{ sent, want string }{
		{"visitor", fmt.Sprintf("01ffff%x", "visitor.lab.test")}, {"visitor", none}, {"w0", none}, {"wpad", none},
	} {
		m := d.machine(t, fmt.Sprintf("02:00:7c:00:01:%02x", i))
		out, _ := m.run("udhcpc", "-i", "eth0", "-n", "-q", "-t", "10", "-T", "2", "-F", tt.sent, "-O", "81", "-s", script)
		_, text, _ := strings.Cut(out, "got ")
		got := strings.Fields(text)
		if len(got) < 2 || got[1] != tt.want {
			t.Errorf("machine %d sends %s and gets %q, want %s\n%s", i, tt.sent, got, tt.want, out)
			continue
		}
		if is := d.dig("-x", got[0]) == "visitor.lab.test." && d.dig("visitor.lab.test") == got[0]; is != (tt.want != none) {
			t.Errorf("machine %d at %s: DNS has its name: %v", i, got[0], is)
		}
	}
}
