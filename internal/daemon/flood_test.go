package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// from returns a client whose requests come from that address, which is added to the bridge of the lab.
func (r *rig) from(addr string) *http.Client {
	r.t.Helper()
	bridge := regexp.MustCompile(`interface: (\w+)`).FindStringSubmatch(r.read())[1]
	netns.Run(r.t, "ip", "addr", "add", addr+"/24", "dev", bridge)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (r *rig) status200(c *http.Client, method, url string) bool {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// TestNeighbourFloods: a neighbour of machine a has hundreds of requests refused, most of them in a's name. All are counted. The log has
// a few lines, a's timeline every event of its own and how many requests others made in its name.
func TestNeighbourFloods(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.58.0.1")
	public := filepath.Join(filepath.Dir(r.lab), "files", "public")
	if err := os.MkdirAll(public, 0o755); err != nil {
		t.Fatal(err)
	}
	var own []string
	for i := range 5 {
		name := fmt.Sprint("part", i)
		if err := os.WriteFile(filepath.Join(public, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		own = append(own, "files/public/"+name)
	}
	r.write(strings.Replace(r.read(), "hosts:\n  a: {", "profiles:\n  p: {kernel: k, install_to: /dev/vda}\nhosts:\n  a: {profile: p, ", 1))
	r.start()
	a, neighbour := r.from("10.58.0.11"), r.from("10.58.0.99")
	const web, mac = "http://10.58.0.1:8080", "52-54-00-00-00-01"
	const rounds = 100
	for i, file := range own {
		for n := range rounds {
			n += i * rounds
			for _, path := range []string{
				fmt.Sprint("/files/nosuch", n), "/boot/" + mac + fmt.Sprint("/nosuch", n, ".efi"), fmt.Sprint("/config/", mac, "/TOKEN", n, "/a.ign"),
				"/report/" + mac + fmt.Sprint("?serial=", n), "/boot/" + mac + "/boot.ipxe",
			} {
				if r.status200(neighbour, http.MethodGet, web+path) && !strings.HasSuffix(path, "boot.ipxe") { // a script that says why
					t.Fatalf("the neighbour may fetch %s", path)
				}
			}
			r.refusedTFTP(fmt.Sprint("boot/", mac, "/nosuch", n))
		}
		if !r.status200(a, http.MethodGet, web+"/"+file) {
			t.Fatalf("a may not fetch %s", file)
		}
	}
	all := len(own) * rounds
	r.until("all requests are counted", func() bool {
		m := r.get("http://10.58.0.1:9680/metrics")
		return strings.Contains(m, fmt.Sprintf("bootlab_events_total{kind=\"file_missing\"} %d\n", 2*all)) &&
			strings.Contains(m, fmt.Sprintf("bootlab_events_total{kind=\"config_refused\"} %d\n", all)) &&
			strings.Contains(m, fmt.Sprintf("bootlab_events_total{kind=\"script_refused\"} %d\n", 2*all)) &&
			strings.Contains(m, fmt.Sprintf("bootlab_events_total{kind=\"tftp_refused\"} %d\n", all))
	})
	if n := strings.Count(r.log.String(), "\n"); n > 120 {
		t.Errorf("the log has %d lines for %d refused requests:\n%.3000s", n, 6*all, r.log)
	}
	r.until("a summary is on the timeline", func() bool { return r.claimed("a") >= 5*all })
	boots, err := r.client.Boots(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for _, b := range boots {
		for _, e := range b.Events {
			if !e.Claimed {
				served = append(served, e.Detail)
			}
		}
		if b.Outcome == "failed" {
			t.Errorf("a's boot failed: %s", b.Reason)
		}
	}
	if diff := cmp.Diff(own, served); diff != "" {
		t.Errorf("a's own events (-want +got):\n%s", diff)
	}
	if n := r.claimed("a"); n != 5*all {
		t.Errorf("%d requests of others in a's name, want %d", n, 5*all)
	}
}

// TestFilesByAnotherMachine: what a neighbour that has the address of host a asks for is no part of a's boot, nor makes it a failed one.
func TestFilesByAnotherMachine(t *testing.T) {
	netns.Need(t, "root", "ip", "curl")
	r := newRig(t, "10.53.0.1")
	spy := r.seg.NewClient(t, "52:54:00:00:00:66")
	netns.Run(t, "ip", "-n", spy.Name, "addr", "add", "10.53.0.11/24", "dev", "eth0")
	public := filepath.Join(filepath.Dir(r.lab), "files", "public")
	if err := errors.Join(os.MkdirAll(public, 0o755), os.WriteFile(filepath.Join(public, "good"), []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r.start()
	asked := []string{"http://10.53.0.1:8080/files/nothere", "http://10.53.0.1:8080/files/public/good", "tftp://10.53.0.1/nothere", "tftp://10.53.0.1/files/public/good"}
	for _, url := range asked {
		_ = exec.CommandContext(t.Context(), "ip", "netns", "exec", spy.Name, "curl", "-s", "--max-time", "20", "-o", os.DevNull, url).Run()
	}
	r.until("all are on the timeline, and that its ARP was received", func() bool { return r.claimed("a") > len(asked) })
	boots, err := r.client.Boots(t.Context(), "a")
	if err != nil || len(boots) != 1 || boots[0].Outcome != "none" || boots[0].Stage != "" {
		t.Fatalf("%+v, %v", boots, err)
	}
	for _, e := range boots[0].Events {
		if !e.Claimed || e.Reason != event.OtherMachine || e.Kind != event.AddressConflict && !strings.HasPrefix(e.Err, "asked for by 52:54:00:00:00:66, which is no NIC of a") {
			t.Errorf("%+v", e)
		}
	}
	why, err := r.client.Why(t.Context(), "a")
	if err != nil || strings.Contains(why.Cause, "a file that") || strings.Contains(strings.Join(why.Do, "\n"), "public") {
		t.Errorf("%+v, %v", why, err)
	}
}

// claimed returns how many requests others made in the name of a host.
func (r *rig) claimed(host string) (n int) {
	r.t.Helper()
	boots, err := r.client.Boots(r.t.Context(), host)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, b := range boots {
		n += b.Claimed
	}
	return n
}

// refusedTFTP asks for a file from the neighbour's address and wants an ERROR packet.
func (r *rig) refusedTFTP(name string) {
	r.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 58, 0, 99)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.WriteTo([]byte("\x00\x01"+name+"\x00octet\x00"), &net.UDPAddr{IP: net.IPv4(10, 58, 0, 1), Port: 69}); err != nil {
		r.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	var b [600]byte
	if n, err := conn.Read(b[:]); err != nil || n < 4 || b[1] != 5 {
		r.t.Fatalf("%s by TFTP: %q, %v, want an ERROR", name, b[:n], err)
	}
}
