package daemon_test

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

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

// TestServerWithoutInterface: DHCP says which of its interfaces it cannot serve.
func TestServerWithoutInterface(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.64.0.1")
	r.write(strings.Replace(r.read(), "hosts:", "  far: {subnet: 10.63.0.0/24, interface: nowhere0, address: 10.63.0.1}\nhosts:", 1))
	r.start()
	s := r.server("dhcpd")
	if s.Serving || len(s.Addrs) != 1 || !strings.Contains(s.Err, "nowhere0") {
		t.Errorf("dhcpd says %+v, want that nowhere0 is missing", s)
	}
	netns.Run(t, "ip", "link", "add", "nowhere0", "type", "bridge")
	defer netns.Run(t, "ip", "link", "del", "nowhere0")
	netns.Run(t, "ip", "link", "set", "nowhere0", "up")
	r.until("the interface is served", func() bool { s := r.server("dhcpd"); return s.Serving && len(s.Addrs) == 2 })
	if _, err := net.InterfaceByName("nowhere0"); err != nil {
		t.Fatal(err)
	}
}
