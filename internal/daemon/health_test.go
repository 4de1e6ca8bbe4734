package daemon_test

import (
	"cmp"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// server returns what the daemon says of one of its servers.
func (r *rig) server(name string) api.Server {
	r.t.Helper()
	s := r.status()
	for _, srv := range s.Servers {
		if srv.Name == name {
			return srv
		}
	}
	r.t.Fatalf("no server %s in %+v", name, s.Servers)
	return api.Server{}
}

// breakListener makes the next accept(2) on a TCP listener of this process fail, as if its socket had broken.
func breakListener(t *testing.T, address string) {
	t.Helper()
	want := netip.MustParseAddrPort(address)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range fds {
		fd, _ := strconv.Atoi(entry.Name())
		sa, err := unix.Getsockname(fd)
		if in, ok := sa.(*unix.SockaddrInet4); err != nil || !ok || netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)) != want {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("this process does not listen on %s", address)
}

// TestOneServerFails: a server whose socket breaks says so, and all others go on, and say that.
func TestOneServerFails(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.65.0.1")
	r.fails = "httpd: serve http on 10.65.0.1:8080: accept"
	r.write(r.read() + "balancers: {web: {listen: \"10.65.0.1:80\", backends: [a:80]}}\n")
	r.start()
	want := map[string]string{
		"dhcpd": "", "tftpd": "10.65.0.1:69", "dnsd": "10.65.0.1:53", "httpd": "10.65.0.1:8080", "admin": "10.65.0.1:9680", "lbproxy": "10.65.0.1:80",
		"virt": "",
	}
	r.until("all servers have begun", func() bool {
		return !slices.ContainsFunc(r.status().Servers, func(s api.Server) bool { return !s.Serving })
	})
	for name, addr := range want {
		if s := r.server(name); !s.Serving || s.Err != "" || s.Since.IsZero() || !strings.Contains(strings.Join(s.Addrs, " "), addr) {
			t.Errorf("%s says %+v, want that it serves on %s", name, s, cmp.Or(addr, "something"))
		}
	}
	if s := r.server("dhcpd"); len(s.Addrs) != 1 {
		t.Errorf("dhcpd listens on %v, want its interface", s.Addrs)
	}
	for name := range want {
		if s := r.server(name); s.Idle != (name == "virt") {
			t.Errorf("%s says idle %v; the lab has no hypervisor, and something to do for each other server", name, s.Idle)
		}
	}
	r.write(r.read() + "hypervisors: {kvm: {uri: \"test:///default\"}}\n")
	r.until("virt has a hypervisor", func() bool { s := r.server("virt"); return s.Serving && !s.Idle })

	breakListener(t, "10.65.0.1:8080")
	r.until("httpd says why it does not serve", func() bool {
		s := r.server("httpd")
		return !s.Serving && strings.Contains(s.Err, "10.65.0.1:8080: accept")
	})
	if s := r.server("httpd"); len(s.Addrs) != 0 {
		t.Errorf("httpd has ended and claims to serve on %v", s.Addrs)
	}
	for name := range want {
		if s := r.server(name); name != "httpd" && (!s.Serving || s.Err != "") {
			t.Errorf("%s says %+v, though nothing happened to it", name, s)
		}
	}
	resp, err := http.Get("http://10.65.0.1:9680/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := r.get("http://10.65.0.1:9680/readyz")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "httpd: not serving: invalid argument\n") || !strings.Contains(body, "dnsd: ok\n") {
		t.Errorf("/readyz: %d\n%s", resp.StatusCode, body)
	}
	if m := r.get("http://10.65.0.1:9680/metrics"); !strings.Contains(m, "\nbootlab_server_up{server=\"httpd\"} 0\n") || !strings.Contains(m, "\nbootlab_server_up{server=\"dnsd\"} 1\n") {
		t.Error("no metric says which server is down")
	}
}

// TestServerWithoutInterface: DHCP reports which of its interfaces it cannot serve, and why, while it cannot; in the status, in
// /readyz, as a metric, and once in the log.
func TestServerWithoutInterface(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.64.0.1")
	r.write(strings.Replace(r.read(), "hosts:", "  far: {subnet: 10.63.0.0/24, interface: nowhere0, address: 10.63.0.1}\nhosts:", 1))
	r.start()
	check := func(want string) {
		t.Helper()
		r.until("dhcpd reports "+cmp.Or(want, "nothing"), func() bool { return r.server("dhcpd").Err == want })
		up, ready := "1", "dhcpd: ok\n"
		if want != "" {
			up, ready = "0", "dhcpd: partly serving: "+strings.TrimPrefix(want, "nowhere0: ")+"\n"
			r.until("the log has "+want, func() bool {
				return strings.Contains(r.log.String(), `err="`+strings.TrimPrefix(want, "nowhere0: ")+`"`)
			})
		}
		if s := r.server("dhcpd"); s.Serving != (want == "") || s.Serving != (len(s.Addrs) == 2) {
			t.Errorf("dhcpd says %+v", s)
		}
		if body := r.get("http://10.64.0.1:9680/readyz"); !strings.Contains(body, ready) {
			t.Errorf("/readyz, want %q:\n%s", ready, body)
		}
		if log := r.log.String(); want != "" && (!strings.Contains(log, `level=WARN msg="server is partly serving" server=dhcpd`) || strings.Contains(log, "server is not serving")) {
			t.Errorf("the log does not say, as the status does, that dhcpd is partly serving:\n%s", log)
		}
		if m := r.get("http://10.64.0.1:9680/metrics"); !strings.Contains(m, "\nbootlab_server_up{server=\"dhcpd\"} "+up+"\n") {
			t.Errorf("bootlab_server_up is not %s", up)
		}
	}
	const missing, down = "nowhere0: interface does not exist", "nowhere0: interface is down"
	check(missing)
	why, err := r.client.Why(t.Context(), "a")
	if facts := strings.Join(why.Facts, "\n"); err != nil || strings.Contains(why.Cause, "DHCP server") || !strings.Contains(facts, "server dhcpd is partly serving: "+missing) {
		t.Errorf("why: %s, %q, %v", why.Cause, facts, err)
	}
	netns.Run(t, "ip", "link", "add", "nowhere0", "type", "bridge")
	defer netns.Run(t, "ip", "link", "del", "nowhere0")
	check(down)
	netns.Run(t, "ip", "link", "set", "nowhere0", "up")
	check("")
	before := len(r.log.String())
	netns.Run(t, "ip", "link", "set", "nowhere0", "down")
	check(down)
	netns.Run(t, "ip", "link", "set", "nowhere0", "up")
	check("")
	deleted := len(r.log.String())
	netns.Run(t, "ip", "link", "del", "nowhere0") // the kernel takes it down first, which may be seen
	check(missing)
	time.Sleep(2100 * time.Millisecond) // two checks more
	netns.Run(t, "ip", "link", "add", "nowhere0", "up", "type", "bridge")
	check("")
	log := r.log.String()
	for _, part := range []struct {
		err, log string
	}{{"interface is down", log[before:deleted]}, {"interface does not exist", log[deleted:]}} {
		if n := strings.Count(part.log, `err="`+part.err+`"`); n != 1 {
			t.Errorf("the log has %q %d times:\n%s", part.err, n, part.log)
		}
	}
}

// TestLostAddressIsLogged: the log names each server that an address of an interface is lost for, once, and says when it is back.
func TestLostAddressIsLogged(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.64.1.1")
	text := strings.Replace(r.read(), "hosts:", "  far: {subnet: 10.63.1.0/24, interface: far0, address: 10.63.1.1, dhcp: off}\nhosts:", 1)
	for _, port := range []string{"53", "69", "8080"} {
		text = strings.Replace(text, `"10.64.1.1:`+port+`"`, `["10.64.1.1:`+port+`", "10.63.1.1:`+port+`"]`, 1)
	}
	r.write(text)
	add := func() {
		netns.Run(t, "ip", "link", "add", "far0", "up", "type", "bridge")
		netns.Run(t, "ip", "addr", "add", "10.63.1.1/24", "dev", "far0")
	}
	add()
	r.start()
	lost := func(msg string) (n int) {
		for line := range strings.Lines(r.log.String()) {
			for _, of := range []string{"server=dnsd addr=10.63.1.1:53", "server=httpd addr=10.63.1.1:8080", "server=tftpd addr=10.63.1.1:69"} {
				if strings.Contains(line, `msg="`+msg+`" `+of) {
					n++
				}
			}
		}
		return n
	}
	const gone, back = "address is not served", "address is served again"
	r.until("the servers have begun", func() bool { return strings.Contains(r.log.String(), "daemon_ready") })
	netns.Run(t, "ip", "link", "del", "far0")
	r.until("the log has the lost addresses", func() bool { return lost(gone) == 3 })
	time.Sleep(2100 * time.Millisecond) // two checks more
	add()
	defer netns.Run(t, "ip", "link", "del", "far0")
	r.until("the log says that they are back", func() bool { return lost(back) == 3 })
	if n := lost(gone); n != 3 {
		t.Errorf("%d lines about 3 lost addresses:\n%s", n, r.log.String())
	}
}

// TestInterfaceDown: a server does not serve while the interface of its addresses is down, in part if it has others; in the status, in /readyz and
// as a metric. Where nobody is connected, it is degraded.
func TestInterfaceDown(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.64.2.1")
	client := r.seg.NewClient(t)
	r.write(strings.Replace(r.read(), `dns: "10.64.2.1:53"`, `dns: ["10.64.2.1:53", "10.64.3.1:53"]`, 1) +
		"balancers: {web: {listen: [\"10.64.2.1:80\", \"10.64.2.1:81\"], backends: [a:80], check: {kind: none}}}\n")
	r.write(strings.Replace(r.read(), "hosts:", "  far: {subnet: 10.64.3.0/24, interface: far0, address: 10.64.3.1, dhcp: off}\nhosts:", 1))
	netns.Run(t, "ip", "link", "add", "far0", "up", "type", "bridge")
	defer netns.Run(t, "ip", "link", "del", "far0")
	netns.Run(t, "ip", "addr", "add", "10.64.3.1/24", "dev", "far0")
	r.start()
	check := func(when, dns, others, problem, cause string) {
		t.Helper()
		for name, state := range map[string]string{"dnsd": dns, "tftpd": others, "httpd": others, "lbproxy": others, "admin": dns} {
			said := func() (s api.Status, srv api.Server) {
				s = r.status()
				return s, s.Servers[slices.IndexFunc(s.Servers, func(srv api.Server) bool { return srv.Name == name })]
			}
			r.until(when+": "+name+" is "+state, func() bool { s, srv := said(); return string(s.StateOf(srv)) == state })
			s, srv := said()
			if got := strings.Join(s.Problems(srv), "; "); got != problem || srv.Serving == strings.HasSuffix(state, " serving") {
				t.Errorf("%s: %s: %q, serving %v, want %q", when, name, got, srv.Serving, problem)
			}
			want := name + ": " + state + ": " + cause + "\n"
			if problem == "" {
				want = name + ": ok\n"
			}
			if body := r.getBySocket("/readyz"); !strings.Contains(body, want) {
				t.Errorf("%s: /readyz, want %q:\n%s", when, want, body)
			}
			up := "1"
			if !srv.Serving {
				up = "0"
			}
			if m := r.getBySocket("/metrics"); !strings.Contains(m, "\nbootlab_server_up{server=\""+name+"\"} "+up+"\n") {
				t.Errorf("%s: bootlab_server_up of %s is not %s", when, name, up)
			}
		}
	}
	check("at first", "serving", "serving", "", "")
	netns.Run(t, "ip", "link", "set", r.seg.Bridge, "down")
	check("down", "partly serving", "not serving", r.seg.Bridge+" is down", "interface is down")
	netns.Run(t, "ip", "link", "set", r.seg.Bridge, "up")
	check("up again", "serving", "serving", "", "")
	netns.Run(t, "ip", "-n", client.Name, "link", "set", "eth0", "down")
	check("not connected", "degraded", "degraded", r.seg.Bridge+": interface has no carrier: nobody is reached on it", "interface has no carrier")
	netns.Run(t, "ip", "-n", client.Name, "link", "set", "eth0", "up")
	check("connected again", "serving", "serving", "", "")
}

// TestNoCarrier: a pulled cable is a condition that is not good, in words of doctor; the daemon stays ready. A bridge without a port is none in a
// lab with virtual machines.
func TestNoCarrier(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.55.0.1")
	client := r.seg.NewClient(t)
	base := r.read()
	r.start()
	check := func(problem string) {
		t.Helper()
		r.until("the condition is "+problem, func() bool {
			all, _ := r.status().ConditionsOf(api.ConditionInterface)
			return len(all) == 1 && all[0].Problem == problem && all[0].OK == (problem == "")
		})
		line, failed := "\ninterfaces: ok\n", "0"
		if problem != "" {
			line, failed = "\ninterfaces: failed: 1 of 1 (bootlab status says which)\n", "1"
		}
		resp, err := http.Get("http://10.55.0.1:9680/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if body := r.get("http://10.55.0.1:9680/readyz"); resp.StatusCode != http.StatusOK || !strings.Contains(body, line) {
			t.Errorf("/readyz: %d\n%s", resp.StatusCode, body)
		}
		if m := r.get("http://10.55.0.1:9680/metrics"); !strings.Contains(m, "\nbootlab_conditions{condition=\"interface\",state=\"failed\"} "+failed+"\n") {
			t.Errorf("the metric is not %s", failed)
		}
	}
	check("")
	netns.Run(t, "ip", "-n", client.Name, "link", "set", "eth0", "down")
	check("has no carrier: no cable, or no port of the bridge, is connected: look at ip link show " + r.seg.Bridge)
	netns.Run(t, "ip", "netns", "del", client.Name) // and with it the bridge's port
	check("has no carrier: the bridge has no port: run ip link set NIC master " + r.seg.Bridge)
	r.until("the log has it", func() bool { return strings.Contains(r.log.String(), "the bridge has no port") })
	if log := r.log.String(); strings.Contains(log, "not served") || !strings.Contains(log, `msg="network is served, but has no carrier" `) {
		t.Errorf("DHCP serves it, and the log has:\n%s", log)
	}
	r.write(base + "hypervisors: {kvm: {uri: \"test:///default\"}}\n")
	check("")
	r.until("the log has that it is over", func() bool { return strings.Contains(r.log.String(), `msg="network has a carrier again" `) })
}
