package tftpd_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
)

// TestAmplification measures, in octets of IP, what a request brings to a machine that never answers, as one whose address was forged: from
// a namespace inside the lab's networks, from one outside, and from one outside that is allowed.
func TestAmplification(t *testing.T) {
	netns.Need(t, "root", "ip", "bash", "nft")
	seg := netns.NewSegment(t, "10.78.0.1/24")
	netns.Run(t, "ip", "addr", "add", "203.0.113.1/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "addr", "add", "198.51.100.1/24", "dev", seg.Bridge)
	const text = "version: 1\ndomain: lab.test\nappliance: {tftp_allow: [198.51.100.0/24]}\nnetworks: {n: {subnet: 10.78.0.0/24, address: 10.78.0.1}}\n" +
		"profiles: {p: {kernel: images/kernel}}\nhosts: {a: {mac: \"52:54:00:00:02:01\", ip: 10.78.0.21, profile: p}}\n"
	// From the shared port: the socket of bash takes packets of the port that it has sent to.
	s := newTestServer(t, testConfig{single: true, listen: "0.0.0.0:0", lab: text, Config: tftpd.Config{Timeout: 100 * time.Millisecond}})
	for _, tt := range []struct {
		name, client, server string
		kind                 event.Kind
		most                 float64 // octets out for one in
	}{
		{"inside", "10.78.0.50", "10.78.0.1", event.TFTPFailed, 40},
		{"outside", "203.0.113.50", "203.0.113.1", event.TFTPRefused, 1},
		{"allowed", "198.51.100.50", "198.51.100.1", event.TFTPFailed, 40},
	} {
		machine := seg.NewClient(t)
		netns.Run(t, "ip", "-n", machine.Name, "addr", "add", tt.client+"/24", "dev", "eth0")
		count(t, machine)
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		cmd := machine.Command(ctx, "bash", "-c", fmt.Sprintf(`exec 3<>/dev/udp/%s/%d; printf '\000\001images/kernel\000octet\000' >&3; exec sleep 60`, tt.server, s.addr.Port()))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		e := s.events.next(t)
		netns.WaitFor(t, "the answer to arrive", func() bool { in, _ := octets(t, machine); return in > 0 })
		cancel()
		_ = cmd.Wait()
		in, out := octets(t, machine)
		got := float64(in) / float64(out)
		t.Logf("%s: %d octets for %d, %.1f times", tt.name, in, out, got)
		if e.Kind != tt.kind || got > tt.most {
			t.Errorf("%s: %s, %.1f octets for each of the request, want %s and at most %v", tt.name, e.Kind, got, tt.kind, tt.most)
		}
	}
}

// count has a machine count its octets of IP. IGMP, which the kernel reports when it likes, is not counted.
func count(t *testing.T, machine *netns.Client) {
	t.Helper()
	machine.Run(t, "nft", `table ip t {
  chain in { type filter hook input priority 0; ip protocol != igmp counter; }
  chain out { type filter hook output priority 0; ip protocol != igmp counter; }
}`)
}

// octets returns how many octets of IP a machine has received and sent since count.
func octets(t *testing.T, machine *netns.Client) (in, out int) {
	t.Helper()
	text := machine.Run(t, "nft", "list", "table", "ip", "t")
	n := regexp.MustCompile(`bytes (\d+)`).FindAllStringSubmatch(text, -1)
	if len(n) != 2 {
		t.Fatalf("two counters expected:\n%s", text)
	}
	in, _ = strconv.Atoi(n[0][1])
	out, _ = strconv.Atoi(n[1][1])
	return in, out
}

// TestForgedBroadcastSource: a request from the broadcast address of a network of the lab gets no reply, which all its machines would receive.
func TestForgedBroadcastSource(t *testing.T) {
	eachPort(t, func(t *testing.T, single bool) {
		const text = "version: 1\ndomain: lab.test\nnetworks: {n: {subnet: 127.0.0.0/24, address: 127.0.0.1}}\n"
		s := newTestServer(t, testConfig{single: single, lab: text})
		for _, tt := range []struct {
			from string
			want bool
		}{{"127.0.0.255", false}, {"127.0.0.254", true}} {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(tt.from)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.WriteToUDPAddrPort([]byte("\x00\x01nosuch\x00octet\x00"), s.addr); err != nil {
				t.Fatal(err)
			}
			if tt.want { // and the requests before it were handled
				_ = conn.SetReadDeadline(time.Now().Add(maxWait))
				if _, err := conn.Read(make([]byte, 600)); err != nil {
					t.Errorf("no reply to %s: %v", tt.from, err)
				}
				if n := len(s.events.events); n != 1 {
					t.Errorf("%d requests were answered, want 1", n)
				}
			}
			_ = conn.Close()
		}
	})
}
