package interop

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// tftpSizes are edge cases: an empty file, whole blocks and one byte more or less, and more blocks than there are numbers.
func tftpSizes() []int { return []int{0, 1, 511, 512, 513, 40 << 20} }

// A tftpClient is a TFTP client of the distribution. argv fetches name from the server to file.
type tftpClient struct {
	name, need string
	argv       func(server, name, file string) []string
}

func atftp(options ...string) func(server, name, file string) []string {
	return func(server, name, file string) []string {
		argv := []string{"atftp", "--get", "-r", name, "-l", file}
		for _, o := range options {
			argv = append(argv, "--option", o)
		}
		return append(argv, server)
	}
}

func curlTFTP(block int) func(server, name, file string) []string {
	return func(server, name, file string) []string {
		return []string{"curl", "-sS", "--tftp-blksize", strconv.Itoa(block), "-o", file, "tftp://" + server + "/" + name}
	}
}

func tftpClients() []tftpClient {
	return []tftpClient{
		{"tftp-hpa", "tftp", func(server, name, file string) []string {
			return []string{"tftp", "-m", "octet", server, "-c", "get", name, file}
		}},
		{"atftp", "atftp", atftp()},
		{"atftp window 16", "atftp", atftp("blksize 1428", "windowsize 16", "tsize 0")},
		{"atftp window 64 of small blocks", "atftp", atftp("blksize 512", "windowsize 64")},
		{"curl", "curl", curlTFTP(512)},
		{"curl large blocks", "curl", curlTFTP(8192)},
		{"busybox", "busybox", func(server, name, file string) []string {
			return []string{"busybox", "tftp", "-g", "-r", name, "-l", file, server}
		}},
		{"busybox blksize", "busybox", func(server, name, file string) []string {
			return []string{"busybox", "tftp", "-g", "-b", "1428", "-r", name, "-l", file, server}
		}},
	}
}

// tftpLab serves those files, with a port for each transfer or one for all.
func tftpLab(t *testing.T, subnet string, single bool) *labFile {
	t.Helper()
	l := newLab(t, subnet)
	l.appliance = fmt.Sprintf("  tftp_single_port: %t\n", single)
	r := rand.NewChaCha8([32]byte{9})
	for _, size := range tftpSizes() {
		b := make([]byte, size)
		_, _ = r.Read(b)
		l.file("files/public/"+strconv.Itoa(size), b)
	}
	l.write()
	return l
}

// fetches checks that a client fetches the file of that size to a machine.
func (m *machine) fetches(t *testing.T, c tftpClient, server string, size int) error {
	t.Helper()
	name := strconv.Itoa(size)
	want, err := os.ReadFile(filepath.Join(m.d.dir, "files/public", name))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	argv := c.argv(server, "public/"+name, file)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // 80,000 small blocks, one at a time
	defer cancel()
	if out, err := m.Command(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	got, err := os.ReadFile(file)
	if err != nil && size > 0 { // some make no file of nothing
		return err
	}
	if sha256.Sum256(got) != sha256.Sum256(want) {
		return fmt.Errorf("%s: %d bytes, and not the %d of the file (equal up to %d)", c.name, len(got), len(want), equalUpTo(got, want))
	}
	return nil
}

func equalUpTo(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// TestTFTPClients: every client fetches every file, with a port for each transfer and with one for all.
func TestTFTPClients(t *testing.T) {
	t.Parallel()
	for i, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single port %t", single), func(t *testing.T) {
			t.Parallel()
			l := tftpLab(t, fmt.Sprintf("10.97.%d", i), single)
			d := start(t, l)
			m := d.machine(t, "52:54:00:00:00:77", l.net+".77")
			for _, c := range tftpClients() {
				t.Run(c.name, func(t *testing.T) {
					netns.Need(t, c.need)
					for _, size := range tftpSizes() {
						if err := m.fetches(t, c, d.addr, size); err != nil {
							t.Error(err)
						}
					}
				})
			}
			if failed := d.metric(`bootlab_tftpd_transfers_total{result="failed"}`); failed > 0 {
				t.Errorf("the server counts %v failed transfers", failed)
			}
		})
	}
}

// TestTFTPThroughNAT: clients behind a router that masquerades ask a port of that router that leads to the server, as a container's
// published port does. Without a single port neither can work, which shows that the router is one.
func TestTFTPThroughNAT(t *testing.T) {
	t.Parallel()
	netns.Need(t, "nft")
	for i, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single port %t", single), func(t *testing.T) {
			t.Parallel()
			l := tftpLab(t, fmt.Sprintf("10.97.%d", 2+i), single)
			d := start(t, l)
			inner := behindNAT(t, d, fmt.Sprintf("10.97.%d", 4+i))
			for name, server := range map[string]string{"masqueraded": d.addr, "published port": fmt.Sprintf("10.97.%d.1", 4+i)} {
				t.Run(name, func(t *testing.T) {
					if !single {
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
						defer cancel()
						out, err := inner.Command(ctx, "curl", "-sS", "-m", "2", "-o", "/dev/null", "tftp://"+server+"/public/513").CombinedOutput()
						if err == nil {
							t.Errorf("a transfer with its own port went through a NAT that knows no TFTP: %s", out)
						}
						return
					}
					for _, c := range tftpClients() {
						netns.Need(t, c.need)
						for _, size := range []int{0, 513, 40 << 20} {
							if size > 1<<20 && !strings.HasPrefix(c.name, "atftp window 16") && c.name != "curl" {
								continue // the rollover is tested without a NAT
							}
							if err := inner.fetches(t, c, server, size); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
		})
	}
}

// behindNAT returns a machine behind a router of the lab's network. The router has port 69 of its inner address lead to the server.
func behindNAT(t *testing.T, d *daemon, subnet string) *machine {
	t.Helper()
	router := d.machine(t, "52:54:00:00:00:99", d.net+".99")
	inner := netns.NewSegment(t, subnet+".254/24")
	m := &machine{Client: inner.NewClient(t), d: d}
	nic := "in" + m.NIC
	netns.Run(t, "ip", "link", "add", nic, "type", "veth", "peer", "name", "in0", "netns", router.Name)
	netns.Run(t, "ip", "link", "set", nic, "master", inner.Bridge, "up")
	netns.Run(t, "ip", "-n", router.Name, "addr", "add", subnet+".1/24", "dev", "in0")
	netns.Run(t, "ip", "-n", router.Name, "link", "set", "in0", "up")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", subnet+".2/24", "dev", "eth0")
	netns.Run(t, "ip", "-n", m.Name, "route", "add", "default", "via", subnet+".1")
	rules := filepath.Join(t.TempDir(), "nat")
	writeFile(t, rules, strings.NewReplacer("SERVER", d.addr, "SELF", subnet+".1").Replace(`table ip nat {
	chain to { type nat hook prerouting priority -100; iifname in0 ip daddr SELF udp dport 69 dnat to SERVER; }
	chain from { type nat hook postrouting priority 100; oifname eth0 masquerade; }
}
`))
	netns.Run(t, "ip", "netns", "exec", router.Name, "nft", "-f", rules)
	netns.Run(t, "ip", "netns", "exec", router.Name, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	return m
}

// TestTFTPHalfOpen: 10,000 clients send a request and never acknowledge. Memory stays bounded, and other clients are served.
func TestTFTPHalfOpen(t *testing.T) {
	t.Parallel()
	for i, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single port %t", single), func(t *testing.T) { // one after the other: each takes 10,000 sockets
			l := tftpLab(t, fmt.Sprintf("10.97.%d", 6+i), single)
			d := start(t, l)
			good := d.machine(t, "52:54:00:00:00:77", l.net+".77")
			fetch := func() error {
				out, err := good.run("curl", "-sS", "-m", "60", "tftp://"+d.addr+"/public/513")
				if err == nil && out != string(mustRead(t, filepath.Join(l.dir, "files/public/513"))) {
					err = fmt.Errorf("%d bytes, and not those of the file", len(out))
				}
				return err
			}
			if err := fetch(); err != nil {
				t.Fatal(err)
			}
			const memory = "process_resident_memory_bytes"
			before := d.metric(memory)
			d.machine(t, "52:54:00:00:00:78", l.net+".78").halfOpen(t, 10_000)
			grown := d.metric(memory) - before
			if grown > 64<<20 { // of which 40 MiB may be garbage, see process/memory
				t.Errorf("the daemon grew by %.0f KiB", grown/1024)
			}
			at := time.Now()
			if err := fetch(); err != nil {
				t.Errorf("a client after them: %v", err)
			}
			t.Logf("10,000 asked: %.0f KiB more, %v transfers under way; a client after them was served after %v",
				grown/1024, d.metric("bootlab_tftpd_transfers_active"), time.Since(at).Round(time.Millisecond))
		})
	}
}

// halfOpen asks for a file from n ports, which stay open and never answer.
func (m *machine) halfOpen(t *testing.T, n int) {
	t.Helper()
	var clients []*net.UDPConn
	t.Cleanup(func() {
		for _, c := range clients {
			_ = c.Close()
		}
	})
	server := &net.UDPAddr{IP: net.ParseIP(m.d.addr), Port: 69}
	if err := m.inside(func() error {
		for range n {
			c, err := net.ListenUDP("udp4", nil)
			if err != nil {
				return err
			}
			clients = append(clients, c)
			if _, err := c.WriteTo([]byte("\x00\x01public/513\x00octet\x00"), server); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
