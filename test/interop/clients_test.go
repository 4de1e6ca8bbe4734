package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A program is a DHCP client of the distribution, with its own script.
type program struct {
	name  string
	needs []string
	// config is written to DIR/conf. DIR is a folder that outlives the program.
	config   string
	prepare  string         // shell, as root of a system of its own: what the program has to find
	command  string         // shell: runs the program in the foreground
	memory   string         // file in DIR that lets it ask for its old address after a power cut (INIT-REBOOT); empty: it forgets
	renew    syscall.Signal // makes it renew; 0: it does at half of any lease time
	release  syscall.Signal // makes it give its lease back; 0: a second run does
	resolver string         // where its own system says which DNS servers there are
	names    []string       // what is to be found there
}

// programs are the clients of four families. Their scripts configure the system.
func programs() []program {
	return []program{
		{
			name: "dhclient", needs: []string{"dhclient"}, memory: "leases",
			config:   "initial-interval 1;\nbackoff-cutoff 1;\ninitial-delay 0;\nreboot 15;\n",
			prepare:  "cat /etc/dhcp/dhclient.conf >> DIR/conf",
			command:  "exec dhclient -4 -d -v -cf DIR/conf -lf DIR/leases -pf DIR/pid eth0",
			resolver: "/etc/resolv.conf", names: []string{"search lab.test. deep.lab.test.", "nameserver NET.1"},
		},
		{
			name: "udhcpc", needs: []string{"udhcpc", "busybox"}, release: syscall.SIGUSR2, renew: syscall.SIGUSR1,
			config: `#!/bin/sh
/etc/udhcpc/default.script "$@"
set -- $staticroutes
while [ $# -gt 1 ]; do ip route replace "$1" via "$2"; shift 2; done
`,
			prepare:  "chmod 755 DIR/conf",
			command:  "exec udhcpc -f -i eth0 -s DIR/conf -O staticroutes -O search -t 10 -T 1",
			resolver: "/etc/resolv.conf", names: []string{"domain lab.test", "nameserver NET.1"},
		},
		{
			name: "dhcpcd", needs: []string{"dhcpcd"}, memory: "db/eth0.lease", release: syscall.SIGALRM,
			config:   "duid\nipv4only\nnoarp\nnodev\noption domain_name_servers, domain_name, domain_search, classless_static_routes, interface_mtu, host_name\nrequire dhcp_server_identifier\n",
			prepare:  "mkdir -p DIR/db /run/dhcpcd /var/lib/dhcpcd; mount --bind DIR/db /var/lib/dhcpcd; rm -f /etc/dhcpcd.duid",
			command:  "exec dhcpcd -4 -B -f DIR/conf eth0",
			resolver: "/etc/resolv.conf", names: []string{"search lab.test deep.lab.test", "nameserver NET.1"},
		},
		{
			name: "networkd", needs: []string{"/lib/systemd/systemd-networkd"}, release: syscall.SIGTERM,
			config: "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n[DHCPv4]\nUseDomains=yes\n",
			prepare: "rm -rf /etc/systemd/network; mkdir -p /etc/systemd/network; cp DIR/conf /etc/systemd/network/10-eth0.network; chmod 644 /etc/systemd/network/*; " +
				"echo 0123456789abcdef0123456789abcdef > /etc/machine-id; mkdir -p /run/systemd/netif; chown -R systemd-network /run/systemd/netif; mount -o remount,bind,ro /sys",
			command:  "exec /lib/systemd/systemd-networkd",
			resolver: "/run/systemd/netif/leases/*", names: []string{"DNS=NET.1", "DOMAINNAME=lab.test", "DOMAIN_SEARCH_LIST=lab.test deep.lab.test"},
		},
	}
}

// A running is a client that runs in a machine, with its own /etc and /run.
type running struct {
	t   *testing.T
	m   *machine
	p   program
	dir string
	cmd *exec.Cmd
	log *output
}

// own mounts a private /etc, /run and /tmp for the shell that follows.
const own = `mount --make-rprivate /; mkdir -p DIR/own; mount -t tmpfs none DIR/own; mkdir DIR/own/upper DIR/own/work
mount -t overlay none -o lowerdir=/etc,upperdir=DIR/own/upper,workdir=DIR/own/work /etc
rm -f /etc/resolv.conf; : > /etc/resolv.conf; mount -t tmpfs -o mode=755 none /run
`

// runs prepares a client in a machine; start starts it.
func (m *machine) runs(t *testing.T, p program) *running {
	t.Helper()
	netns.Need(t, append(p.needs, "unshare", "mount")...)
	r := &running{t: t, m: m, p: p, dir: t.TempDir(), log: &output{}}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "conf"), []byte(p.config), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, tail(r.log.String()))
		}
	})
	return r
}

func (r *running) start() {
	r.t.Helper()
	script := strings.ReplaceAll("set -e\n"+own+r.p.prepare+"\n"+r.p.command, "DIR", r.dir)
	r.cmd = r.m.Command(context.Background(), "unshare", "-m", "sh", "-c", script)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	r.cmd.WaitDelay = time.Second // a helper of its may hold the pipe
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// kill kills the client and its helpers, which are all processes of the machine.
func (r *running) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	out, _ := exec.Command("ip", "netns", "pids", r.m.Name).Output() // none: no output
	for _, pid := range strings.Fields(string(out)) {
		_ = exec.Command("kill", "-9", pid).Run() // it may have ended
	}
	_ = r.cmd.Wait()
	r.cmd = nil
}

// giveBack makes the client release its lease.
func (r *running) giveBack() {
	r.t.Helper()
	if r.p.release != 0 {
		_ = r.cmd.Process.Signal(r.p.release)
		return
	}
	out, err := r.m.run("dhclient", "-4", "-r", "-sf", "/bin/true", "-lf", filepath.Join(r.dir, "leases"), "-pf", filepath.Join(r.dir, "pid"), "eth0")
	if err != nil {
		r.t.Errorf("release: %v\n%s", err, out)
	}
}

// read returns files of the client's own system, or nothing if there are none. A client may have locked itself into an empty
// folder, so /proc/PID/root would not do.
func (r *running) read(pattern string) string {
	b, _ := exec.Command("nsenter", "-t", fmt.Sprint(r.cmd.Process.Pid), "-m", "sh", "-c", "cat "+pattern).Output()
	return string(b)
}

// lacks returns what of the lab is not configured in the machine's system, or nothing.
func (r *running) lacks(addr string) string {
	fill := strings.NewReplacer("NET", r.m.d.net)
	addrs := exec.Command("ip", "-n", r.m.Name, "-4", "addr", "show", "dev", "eth0")
	routes := exec.Command("ip", "-n", r.m.Name, "-4", "route")
	for _, look := range []struct {
		at   string
		want []string
	}{
		{command(addrs), []string{"inet " + addr + "/24 "}},
		{command(routes), []string{"default via NET.254 ", "10.55.0.0/16 via NET.253 "}},
		{r.read(r.p.resolver), r.p.names},
	} {
		for _, want := range look.want {
			if want = fill.Replace(want); !strings.Contains(look.at, want) {
				return fmt.Sprintf("%q is not in\n%s", want, look.at)
			}
		}
	}
	return ""
}

func command(c *exec.Cmd) string { out, _ := c.CombinedOutput(); return string(out) }

// configured waits until the machine's system is configured as the lab says, with an address that ok accepts, and returns it.
func (r *running) configured(w *wire, mark int, ok func(netip.Addr) bool) (string, int) {
	r.t.Helper()
	ack, next := w.await("an address for "+r.p.name, mark, patience, func(h captured) bool {
		return h.MessageType() == dhcpv4.MessageTypeAck && h.OpCode == dhcpv4.OpcodeBootReply && ok(netip.AddrFrom4([4]byte(h.YourIPAddr.To4())))
	})
	var lacks string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if lacks = r.lacks(ack.YourIPAddr.String()); lacks == "" {
			return ack.YourIPAddr.String(), next
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s has its address, but %s", r.p.name, lacks)
		}
	}
}

func is(addr string) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return a.String() == addr }
}

func asks(kind func(h captured) bool) func(captured) bool {
	return func(h captured) bool { return h.MessageType() == dhcpv4.MessageTypeRequest && kind(h) }
}

func renewing(server string) func(captured) bool {
	return asks(func(h captured) bool { return !h.ClientIPAddr.IsUnspecified() && h.To.Addr().String() == server })
}

func rebinding(h captured) bool {
	return asks(func(h captured) bool { return !h.ClientIPAddr.IsUnspecified() && h.To == toServers })(h)
}

func reboots(h captured) bool {
	return asks(func(h captured) bool {
		return h.ClientIPAddr.IsUnspecified() && h.ServerIdentifier() == nil && h.RequestedIPAddress() != nil
	})(h)
}

// lives is a lab with a lease so short that a client goes through every state in seconds.
func lives(t *testing.T, subnet string) *labFile {
	l := newLab(t, subnet)
	l.lan = "    router: NET.254\n    search: [lab.test, deep.lab.test]\n    lease: 20s\n    routes: [{to: 10.55.0.0/16, via: NET.253}]\n"
	l.hosts = "  c0: {mac: \"52:54:00:00:00:20\", ip: NET.20}\n"
	l.write()
	return l
}

// TestClients takes each client through its life: it leases its reserved address, renews, rebinds, comes back after a kill, gets another
// address from a changed lab, and releases it.
func TestClients(t *testing.T) {
	t.Parallel()
	for i, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			l := lives(t, fmt.Sprintf("10.100.%d", i))
			d := start(t, l)
			m := d.machine(t, "52:54:00:00:00:20")
			w, r := m.wire(t), m.runs(t, p)
			r.start()
			first, second := l.net+".20", l.net+".21"
			_, mark := r.configured(w, 0, is(first))
			mark = r.staysOn(w, mark, first)
			if p.memory != "" {
				r.kill()
				r.start()
				_, mark = w.await("INIT-REBOOT", mark, patience, reboots)
				_, mark = r.configured(w, mark, is(first))
				r.kill()
			}
			l.hosts = strings.Replace(l.hosts, "NET.20", "NET.21", 1)
			l.write()
			if err := d.reload(); err != nil {
				t.Fatal(err)
			}
			if p.memory != "" {
				r.start()
				_, mark = w.await("INIT-REBOOT", mark, patience, reboots)
			}
			r.renewNow()
			_, mark = w.await("a NAK for the old address", mark, patience, func(h captured) bool { return h.MessageType() == dhcpv4.MessageTypeNak })
			_, mark = r.configured(w, mark, is(second))
			d.until("RELEASE", func() bool { // dhcpcd ignores the signal while it processes its ACK
				r.giveBack()
				_, _, ok := w.since(mark, 2*time.Second, func(h captured) bool {
					return h.MessageType() == dhcpv4.MessageTypeRelease && h.ClientIPAddr.String() == second
				})
				return ok
			})
			d.until("the lease is released", func() bool { return d.holder(second) == "" })
		})
	}
}

// staysOn waits until a client renews by unicast, and rebinds by broadcast while the server cannot be reached.
func (r *running) staysOn(w *wire, mark int, addr string) int {
	r.t.Helper()
	acked := func(h captured) bool {
		return h.MessageType() == dhcpv4.MessageTypeAck && h.YourIPAddr.String() == addr
	}
	r.renewNow()
	_, mark = w.await("RENEWING by unicast", mark, patience, renewing(r.m.d.addr))
	_, mark = w.await("the renewal", mark, patience, acked)
	if r.p.name == "udhcpc" {
		// A signal before it has read the ACK, and a second one every other time, makes it start over. The other clients show that
		// rebinding works.
		r.m.d.until("udhcpc has read that it is renewed", func() bool { return strings.Count(r.log.String(), " obtained") >= 2 })
		return mark
	}
	netns.Run(r.t, "ip", "-n", r.m.Name, "neigh", "replace", r.m.d.addr, "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0")
	r.renewNow()
	_, mark = w.await("REBINDING by broadcast", mark, patience, rebinding)
	before := r.remembered()
	_, mark = w.await("the renewal", mark, patience, acked)
	_ = exec.Command("ip", "-n", r.m.Name, "neigh", "del", r.m.d.addr, "dev", "eth0").Run() // the client may have reset its card
	r.m.d.until(r.p.name+" writes its lease down", func() bool { return r.p.memory == "" || r.remembered() != before })
	return mark
}

func (r *running) renewNow() {
	if r.p.renew != 0 {
		_ = r.cmd.Process.Signal(r.p.renew)
	}
}

func (r *running) remembered() string {
	b, _ := os.ReadFile(filepath.Join(r.dir, r.p.memory)) // nothing yet
	return string(b)
}

// holder returns the MAC that holds an unexpired lease of that address.
func (d *daemon) holder(addr string) string {
	d.t.Helper()
	leases, err := d.client.Leases(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range leases {
		if l.IP.String() == addr && l.State == api.LeaseActive { // not one in quarantine
			return l.MAC.String()
		}
	}
	return ""
}

// TestClientsInPool is the same for an unknown machine.
func TestClientsInPool(t *testing.T) {
	t.Parallel()
	l := lives(t, "10.100.100")
	d := start(t, l)
	for i, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			m := d.machine(t, fmt.Sprintf("52:54:00:00:01:%02x", i))
			w, r := m.wire(t), m.runs(t, p)
			r.start()
			addr, _ := r.configured(w, 0, func(a netip.Addr) bool { return a.As4()[3] >= 100 && a.As4()[3] <= 250 })
			if got, want := d.holder(addr), fmt.Sprintf("52:54:00:00:01:%02x", i); got != want {
				t.Errorf("the lease book has %s for %q, want %s", addr, got, want)
			}
		})
	}
}
