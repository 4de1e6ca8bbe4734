package interop

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

var listens = regexp.MustCompile(`(?m)^  (http|tftp|dns|admin): .*\n`)

// byDefault writes the lab file with everything on default ports of the lab's own addresses, and what edit makes of it.
func (l *labFile) byDefault(edit ...string) {
	l.t.Helper()
	l.replace(strings.NewReplacer(edit...).Replace(listens.ReplaceAllString(l.text(), "")))
}

// inside runs a command in the daemon's namespace until the test ends.
func (l *labFile) inside(name string, args ...string) {
	l.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.ns, name}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// unserved returns what does not answer a machine on an address of the appliance.
func (m *machine) unserved(addr string) (missing []string) {
	for what, command := range map[string][]string{
		"DNS over UDP": {"dig", "+short", "+tries=1", "+time=20", "@" + addr, "w0.lab.test"},
		"DNS over TCP": {"dig", "+short", "+tcp", "+tries=1", "+time=20", "@" + addr, "w0.lab.test"},
		"HTTP":         {"curl", "-sS", "-m", "20", "http://" + addr + ":8080/files/public/motd"},
		"TFTP":         {"curl", "-sS", "-m", "20", "tftp://" + addr + "/files/public/motd"},
	} {
		out, err := m.run(command[0], command[1:]...)
		if err != nil || !strings.Contains(out, "hello") && !strings.Contains(out, ".10") {
			missing = append(missing, fmt.Sprintf("%s: %v %s", what, err, out))
		}
	}
	return missing
}

// TestListensOnLabAddresses: by default the servers listen on the lab's own addresses and loopback, beside libvirt's dnsmasq and
// systemd-resolved, and follow a reload. An interface that is not the lab's gets no answer.
func TestListensOnLabAddresses(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dnsmasq", "dig", "curl", "udhcpc")
	l := newLab(t, "10.103.50")
	l.apart()
	l.byDefault()
	in := func(args ...string) { netns.Run(t, "ip", append([]string{"-n", l.ns}, args...)...) }
	in("link", "add", "virbr0", "type", "bridge")
	in("addr", "add", "192.168.122.1/24", "dev", "virbr0")
	in("link", "set", "virbr0", "up")
	dir := t.TempDir()
	l.inside("dnsmasq", "-k", "--conf-file=/dev/null", "--bind-dynamic", "--interface=virbr0", "--except-interface=lo", "--no-resolv", "--no-hosts", "--address=/libvirt.test/192.0.2.122",
		"--dhcp-range=192.168.122.2,192.168.122.254", "--no-ping", "--user=root", "--group=root", "--pid-file="+filepath.Join(dir, "libvirt.pid"), "--dhcp-leasefile="+filepath.Join(dir, "libvirt.leases"))
	l.inside("dnsmasq", "-k", "--conf-file=/dev/null", "--bind-interfaces", "--listen-address=127.0.0.53", "--no-resolv", "--no-hosts", "--address=/stub.test/192.0.2.53",
		"--user=root", "--group=root", "--pid-file="+filepath.Join(dir, "stub.pid"))
	dig := func(server, name string) string {
		out, _ := exec.Command("ip", "netns", "exec", l.ns, "dig", "+short", "+tries=1", "+time=20", "@"+server, name).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	waitUntil(t, "the other servers answer", func() bool {
		return dig("127.0.0.53", "stub.test") == "192.0.2.53" && dig("192.168.122.1", "libvirt.test") == "192.0.2.122"
	})
	third := &netns.Client{Name: l.ns + "x"} // on eth1, which is no network of the lab
	netns.Run(t, "ip", "netns", "add", third.Name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", third.Name).Run() })
	in("link", "add", "eth1", "type", "veth", "peer", "name", "eth0", "netns", third.Name)
	in("addr", "add", "10.103.51.1/24", "dev", "eth1")
	in("link", "set", "eth1", "up")
	netns.Run(t, "ip", "-n", third.Name, "addr", "add", "10.103.51.9/24", "dev", "eth0")
	netns.Run(t, "ip", "-n", third.Name, "link", "set", "eth0", "up")
	third.AwaitUp(t, "eth0")

	d := start(t, l)
	m := d.machine(t, "52:54:00:00:00:10", l.net+".10")
	stranger := &machine{Client: third, d: d}
	if missing := m.unserved(l.addr()); missing != nil {
		t.Errorf("on the lab's address: %q", missing)
	}
	if a := d.machine(t, "52:54:00:00:00:11").lease(t); a != l.net+".11" {
		t.Errorf("leased %q", a)
	}
	if got := dig("127.0.0.1", "w0.lab.test") + " " + dig("::1", "w0.lab.test") + " " + dig("127.0.0.53", "stub.test") + " " + dig("192.168.122.1", "libvirt.test"); got != l.net+".10 "+l.net+".10 192.0.2.53 192.0.2.122" {
		t.Errorf("names on loopback, of the stub and of libvirt: %s", got)
	}
	if missing := stranger.unserved("10.103.51.1"); len(missing) != 4 {
		t.Errorf("on an interface that is not the lab's only %q are not served", missing)
	}
	for _, port := range []string{"53", "80", "8080", "9680", "443", "6443"} {
		const refused = "exit status 7"
		if out, err := stranger.run("curl", "-sS", "-m", "60", "http://10.103.51.1:"+port+"/"); err == nil || err.Error() != refused {
			t.Errorf("port %s, asked by a stranger: %v, want the connection refused\n%s", port, err, out)
		}
	}

	// A reload that brings the network, and one that takes it away.
	const more = "networks:\n  more: {subnet: 10.103.51.0/24, address: 10.103.51.1, interface: eth1, dhcp: off}\n"
	l.byDefault("networks:\n", more)
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if missing := stranger.unserved("10.103.51.1"); missing != nil {
		t.Errorf("after the reload: %q", missing)
	}
	l.byDefault()
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	d.until("the network is not served any more", func() bool { return len(stranger.unserved("10.103.51.1")) == 4 })

	// What clashes: a reload is refused, and a start names the holder and what to do.
	l.byDefault("networks:\n", "networks:\n  virt: {subnet: 192.168.122.0/24, address: 192.168.122.1, dhcp: off}\n")
	if err := d.reload(); err == nil || !strings.Contains(err.Error(), "appliance.dns: listen udp 192.168.122.1:53: address already in use") {
		t.Errorf("a clash: %v", err)
	}
	if missing := m.unserved(l.addr()); missing != nil {
		t.Errorf("after the refused reload: %q", missing)
	}
	d.kill()
	d.launch()
	if code := d.exit(patience); code != 1 || !strings.Contains(d.log.String(), "address already in use by dnsmasq (pid ") {
		t.Errorf("exit %d, or the log does not name dnsmasq", code)
	}
}

// TestInterfacesComeAndGo: all servers serve again after the link, the address, the bridge or its name was gone, and say what is
// missing meanwhile.
func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dig", "curl", "udhcpc")
	l := newLab(t, "10.103.52")
	l.apart()
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from the backend") }))
	_ = backend.Listener.Close() // the one on loopback
	var err error
	if backend.Listener, err = net.Listen("tcp", l.net+".254:7001"); err != nil {
		t.Fatal(err)
	}
	backend.Start()
	t.Cleanup(backend.Close)
	l.balancers = "  echo: {listen: \"NET.1:7000\", backends: [\"NET.254:7001\"], check: {kind: none}}\n"
	l.byDefault("interface: eth0", "interface: br0")
	in := func(args ...string) { netns.Run(t, "ip", append([]string{"-n", l.ns}, args...)...) }
	makeBridge := func() {
		in("link", "add", "br0", "type", "bridge")
		in("link", "set", "eth0", "master", "br0")
		in("addr", "add", l.addr()+"/24", "dev", "br0")
		in("link", "set", "br0", "up")
	}
	in("addr", "flush", "dev", "eth0")

	// The bridge does not exist yet.
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:00:10", l.net+".10")
	fresh := d.machine(t, "52:54:00:00:00:11")
	served := func() []string {
		missing := m.unserved(l.addr())
		if out, err := m.run("curl", "-sS", "-m", "20", "http://"+l.addr()+":7000/"); err != nil || out != "from the backend" {
			missing = append(missing, fmt.Sprintf("balancer: %v %s", err, out))
		}
		if len(missing) == 0 {
			if a := fresh.lease(t); a != l.net+".11" {
				missing = append(missing, "DHCP: "+a)
			}
		}
		return missing
	}
	back := func(what string) {
		t.Helper()
		began := time.Now()
		var missing []string
		for deadline := began.Add(patience); ; {
			if missing = served(); missing == nil {
				t.Logf("%s: all servers answer after %v", what, time.Since(began))
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q", what, missing)
			}
		}
		d.until("the state is clean again", func() bool { return shown(d) == "" })
	}
	reported := func(what, want string) {
		t.Helper()
		d.until(what+" is reported", func() bool { return strings.Contains(shown(d), want) })
	}
	outages := 0
	unserved := func(what, want string) {
		t.Helper()
		outages++
		reported(what, want)
		d.until(what+" is logged as one outage", func() bool { return d.outages("br0") == outages })
	}
	unserved("no bridge", "interface does not exist")
	makeBridge()
	back("bridge made after the start")

	in("link", "set", "br0", "down")
	unserved("link down", "interface is down")
	in("link", "set", "br0", "up")
	back("link up")

	logged := func(text string) func() bool {
		before := strings.Count(d.log.String(), text)
		return func() bool { return strings.Count(d.log.String(), text) == before+1 }
	}
	lost, again := logged("network has lost its address: only DHCP answers"), logged("network has its address again")
	in("addr", "del", l.addr()+"/24", "dev", "br0")
	d.servesNot(t, "httpd", "tftpd", "dnsd")
	reported("address lost", l.addr()+":8080: no interface of this machine has this address")
	if warnings := d.status().Warnings.Error(); strings.Count(warnings, l.addr()+",") != 1 || strings.Contains(shown(d), ":7000: no interface") {
		t.Errorf("one lost address is not one warning:\n%s", shown(d))
	}
	d.until("the lost address is logged once", lost)
	if a := fresh.lease(t); a != l.net+".11" {
		t.Errorf("DHCP leases %q while the address is lost", a)
	}
	in("addr", "add", l.addr()+"/24", "dev", "br0")
	back("address added")
	d.until("the address is logged to be back once", again)
	if !lost() {
		t.Error("the lost address is logged more than once")
	}

	in("link", "del", "br0")
	d.servesNot(t, "dhcpd", "httpd", "tftpd", "dnsd")
	unserved("bridge deleted", "interface does not exist")
	makeBridge()
	back("bridge made again")

	in("link", "set", "br0", "down")
	in("link", "set", "br0", "name", "br9")
	unserved("bridge renamed", "interface does not exist")
	in("link", "set", "br9", "name", "br0")
	in("link", "set", "br0", "up")
	back("bridge renamed back")

	if n := d.outages("br0"); n != outages {
		t.Errorf("%d outages are logged, want %d", n, outages)
	}
}

// outages returns how often an interface was served no longer, or not at the start. The daemon may see any state between two commands that
// make an interface, so an outage has as many lines as it has reasons; but none is logged twice in a row.
func (d *daemon) outages(iface string) (n int) {
	d.t.Helper()
	last := "served"
	for line := range strings.Lines(d.log.String()) {
		state, found := strings.CutPrefix(line[strings.Index(line, "msg=")+1:], `sg="interface is `)
		if !found || !strings.Contains(state, "iface="+iface) {
			continue
		}
		if state == last {
			d.t.Errorf("logged again: %s", line)
		}
		if strings.HasPrefix(last, "served") && !strings.HasPrefix(state, "served") {
			n++
		}
		last = state
	}
	return n
}

// servesNot asks for the status once: none of the servers says that it serves what is gone, and the daemon is not ready.
func (d *daemon) servesNot(t *testing.T, servers ...string) {
	t.Helper()
	s := d.status()
	for _, server := range s.Servers {
		if slices.Contains(servers, server.Name) && (server.Serving || server.Err == "") {
			t.Errorf("%s says that it serves %q, error %q", server.Name, server.Addrs, server.Err)
		}
	}
	if s.Ready() {
		t.Error("the daemon says that it is ready")
	}
}

// shown returns what status shows as wrong.
func shown(d *daemon) (wrong string) {
	s := d.status()
	wrong = s.Warnings.Error()
	for _, server := range s.Servers {
		if !server.Serving {
			wrong += server.Err
		}
		wrong += strings.Join(server.Warnings, "\n")
	}
	return wrong
}
