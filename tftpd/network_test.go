package tftpd_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestOverEthernet fetches from another namespace, over a link of 1,500 bytes: no packet may be larger, the window goes
// through, and the answer comes from the address that was asked though the bridge has two.
func TestOverEthernet(t *testing.T) {
	netns.Need(t, "root", "ip", "curl", "atftp")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "addr", "add", "10.77.0.2/24", "dev", seg.Bridge)
	machine := seg.NewClient(t)
	netns.Run(t, "ip", "-n", machine.Name, "addr", "add", "10.77.0.50/24", "dev", "eth0")
	s := newTestServer(t, testConfig{listen: "0.0.0.0:0"})
	port := strconv.Itoa(int(s.addr.Port()))
	for _, addr := range []string{"10.77.0.1", "10.77.0.2"} {
		for name, argv := range map[string][]string{
			"curl":  {"curl", "-sS", "--tftp-blksize", "8192", "-o", "FILE", "tftp://" + addr + ":" + port + "/images/kernel"},
			"atftp": {"atftp", "--get", "-r", "images/kernel", "-l", "FILE", "--option", "blksize 8192", "--option", "windowsize 16", addr, port},
		} {
			file := filepath.Join(t.TempDir(), "got")
			for i := range argv {
				if argv[i] == "FILE" {
					argv[i] = file
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), maxWait)
			out, err := machine.Command(ctx, argv[0], argv[1:]...).CombinedOutput()
			cancel()
			got, _ := os.ReadFile(file)
			if err != nil || string(got) != string(s.files["images/kernel"]) {
				t.Errorf("%s from %s: %d bytes, %v\n%s", name, addr, len(got), err, out)
			}
			if e := s.events.next(t); e.Kind != event.TFTPServed || e.Addr != netip.MustParseAddr("10.77.0.50") {
				t.Errorf("%s from %s: event %+v", name, addr, e)
			}
		}
	}
	fragments := netns.Run(t, "ip", "netns", "exec", machine.Name, "awk", "/^Ip: [0-9]/ {print $15}", "/proc/net/snmp")
	if fragments != "0\n" {
		t.Errorf("the machine put together %q fragments, want none: blksize was not capped by the MTU", fragments)
	}
}

// TestBlockSizeOverLoopback has no Ethernet to fit in.
func TestBlockSizeOverLoopback(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testConfig{})
	c := newClient(t, s.addr)
	c.send(request("images/kernel", "octet", "blksize", "65464", "tsize", "0"))
	if got, want := c.oack(), "blksize 65464 tsize 300001 "; got != want {
		t.Errorf("oack = %q, want %q", got, want)
	}
}
