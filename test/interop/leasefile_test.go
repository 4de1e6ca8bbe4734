package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A leaseServer is another DHCP server, started with the leases of a file.
type leaseServer struct {
	format string
	start  func(t *testing.T, server *machine, subnet, file string) (leases func() map[string]string) // what it knows: addresses and MACs
}

// keaWith runs Kea, which is asked for its leases.
func keaWith(t *testing.T, server *machine, subnet, file string) func() map[string]string {
	netns.Need(t, "kea-dhcp4")
	dir := filepath.Dir(file)
	socket := filepath.Join(dir, "kea.sock")
	conf := filepath.Join(dir, "kea.conf")
	writeFile(t, conf, fmt.Sprintf(`{"Dhcp4": {
 "interfaces-config": {"interfaces": ["eth0"]},
 "lease-database": {"type": "memfile", "persist": true, "name": %q, "lfc-interval": 0},
 "control-socket": {"socket-type": "unix", "socket-name": %q},
 "hooks-libraries": [{"library": "/usr/lib/x86_64-linux-gnu/kea/hooks/libdhcp_lease_cmds.so"}],
 "valid-lifetime": 3600,
 "subnet4": [{"id": 7, "subnet": "%[3]s.0/24", "pools": [{"pool": "%[3]s.100 - %[3]s.250"}]}],
 "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}]}}
`, file, socket, subnet))
	log := server.daemonize(t, "env", "KEA_PIDFILE_DIR="+dir, "KEA_LOCKFILE_DIR=none", "kea-dhcp4", "-c", conf)
	waitUntil(t, "Kea listens", func() bool { return strings.Contains(log.String(), "DHCP4_STARTED") }, log)
	return func() map[string]string {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, `{"command": "lease4-get-all"}`); err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Arguments struct {
				Leases []struct {
					IP       string `json:"ip-address"`
					MAC      string `json:"hw-address"`
					ClientID string `json:"client-id"`
					Hostname string
				}
			}
		}
		if err := json.NewDecoder(conn).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		known := map[string]string{}
		for _, l := range answer.Arguments.Leases {
			known[l.IP] = strings.TrimSpace(l.MAC + " " + l.Hostname + " " + l.ClientID)
		}
		return known
	}
}

// dnsmasqWith runs dnsmasq, whose leases are in its file: it reads that at the start and rewrites it at each change.
func dnsmasqWith(t *testing.T, server *machine, subnet, file string) func() map[string]string {
	netns.Need(t, "dnsmasq")
	log := server.daemonize(t, "dnsmasq", "-k", "-C", "/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces", "--except-interface=lo", "--no-ping",
		"--user=root", "--pid-file=", "--log-facility=-", "--dhcp-authoritative", "--dhcp-leasefile="+file,
		fmt.Sprintf("--dhcp-range=%[1]s.100,%[1]s.250,255.255.255.0,1h", subnet))
	waitUntil(t, "dnsmasq listens", func() bool { return strings.Contains(log.String(), "DHCP, sockets bound") }, log)
	return func() map[string]string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]string{}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 5 {
				known[f[2]] = strings.TrimSpace(strings.ReplaceAll(f[1]+" "+f[3]+" "+f[4], "*", ""))
			}
		}
		return known
	}
}

// TestLeaseFiles moves leases to Kea and dnsmasq and back. The other server reads our file and treats the machines as its own;
// bootlab reads the file that the other server wrote meanwhile.
func TestLeaseFiles(t *testing.T) {
	t.Parallel()
	for i, peer := range []leaseServer{{"kea", keaWith}, {"dnsmasq", dnsmasqWith}} {
		t.Run(peer.format, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, fmt.Sprintf("10.106.%d", 7+i))
			d := start(t, l)
			w := d.machine(t, fmt.Sprintf("02:00:00:00:ff:%02x", 0x59+i)).wire(t)
			id := func(n int) dhcpv4.Modifier { return with(61, "\x01"+string(numbered(n))) }
			addrs := map[int]string{}
			want := map[string]string{}
			for n := 1; n <= 3; n++ {
				name := fmt.Sprintf("m%d", n)
				addrs[n] = w.bind(numbered(n), id(n), with(12, name)).YourIPAddr.String()
				want[addrs[n]] = fmt.Sprintf("%s %s 01:%s", numbered(n), name, numbered(n))
			}

			// To the other server.
			file := filepath.Join(t.TempDir(), "leases")
			args := []string{"leases", "export", "--format", peer.format}
			if peer.format == "kea" {
				args = append(args, "--subnet-id", "lan=7")
			}
			text, err := d.bootlab(args...)
			if err != nil {
				t.Fatalf("export: %v\n%s", err, text)
			}
			writeFile(t, file, text)
			seg := netns.NewSegment(t, fmt.Sprintf("10.107.%d.254/24", 201+i))
			server, client := &machine{Client: seg.NewClient(t)}, &machine{Client: seg.NewClient(t)}
			netns.Run(t, "ip", "-n", server.Name, "addr", "add", l.net+".1/24", "dev", "eth0")
			known := peer.start(t, server, l.net, file)
			for addr, machine := range want {
				if got := known()[addr]; got != machine {
					t.Errorf("%s has %q for %s, want %q", peer.format, got, addr, machine)
				}
			}
			w = client.wire(t)
			h, ok := w.tryFrom(rebooting(numbered(1), addrs[1], id(1), with(12, "m1")), newClient, toServers, patience)
			if !ok || h.MessageType() != dhcpv4.MessageTypeAck || h.YourIPAddr.String() != addrs[1] {
				t.Errorf("%s answers the machine that had %s here with %s", peer.format, addrs[1], h)
			}
			offer := w.ask(discover(numbered(9), id(9), with(50, string(net.ParseIP(addrs[2]).To4()))))
			fresh := w.ask(selecting(offer, id(9))).YourIPAddr.String()
			if want[fresh] != "" {
				t.Errorf("%s gives %s to another machine", peer.format, fresh)
			}
			waitUntil(t, "it knows the new machine", func() bool { return strings.HasPrefix(known()[fresh], numbered(9).String()) })
			want[fresh] = fmt.Sprintf("%s  01:%s", numbered(9), numbered(9))

			// And back, into a daemon that knows one of them.
			for n := 1; n <= 2; n++ {
				if out, err := d.bootlab("leases", "release", addrs[n]); err != nil {
					t.Fatal(err, out)
				}
			}
			out, err := d.bootlab("leases", "import", file)
			if err != nil || !strings.Contains(out, "imported 3 leases, skipped 1: 1 already leased") {
				t.Fatalf("import: %v\n%s", err, out)
			}
			leases, err := d.client.Leases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, lease := range leases {
				if got := fmt.Sprintf("%s %s %s", lease.MAC, lease.Name, lease.ClientID); got != want[lease.IP.String()] {
					t.Errorf("imported %s: %s, want %s", lease.IP, got, want[lease.IP.String()])
				}
				delete(want, lease.IP.String())
			}
			if len(want) > 0 {
				t.Errorf("not imported: %v", want)
			}
			w = d.machine(t, fmt.Sprintf("02:00:00:00:ff:%02x", 0x69+i)).wire(t)
			h, ok = w.tryFrom(rebooting(numbered(9), fresh, id(9)), newClient, toServers, patience)
			if !ok || h.MessageType() != dhcpv4.MessageTypeAck || h.YourIPAddr != nil && h.YourIPAddr.String() != fresh {
				t.Errorf("the machine that got %s from %s gets %s", fresh, peer.format, h)
			}
		})
	}
}
