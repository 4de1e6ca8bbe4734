package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	leasebook "github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store/logfile"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDashboardMemory: with 100,000 leases and a hundred open dashboards, each of which follows a host, the daemon needs less than 128 MiB,
// with the limit that it takes from a cgroup of 256 MiB.
func TestDashboardMemory(t *testing.T) {
	if os.Getenv("BOOTLAB_LONG") == "" {
		t.Skip("BOOTLAB_LONG is not set: fills a lease book with 100,000 leases")
	}
	const browsers, pages, most = 100, 2, 128 << 10 // KiB
	l := newLab(t, "10.103.40")
	l.networks = "  big: {subnet: 10.200.0.0/15, router: 10.200.0.1, pools: {all: {range: 10.200.0.2-10.201.255.250}}}\n"
	l.apart()
	d := start(t, l)
	d.kill()
	fillBook(t, filepath.Join(l.dir, "state", "state.db"), 100_000)
	d.start(memoryGroup(t, 256<<20)...)
	t.Logf("after the start: %d KiB, %v of CPU time until it answered", d.memory("VmRSS"), d.cpuTime())
	token, err := d.client.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg, followers sync.WaitGroup
	for range browsers {
		followers.Go(func() {
			err := d.client.Follow(ctx, "w0", func(event.Event) error { return nil })
			if err != nil && ctx.Err() == nil {
				t.Errorf("follow w0: %v", err)
			}
		})
		wg.Go(func() {
			for range pages {
				for _, path := range []string{"/", "/api/v1/unknown", "/?q=10.200.7"} {
					if err := fetch(t.Context(), "http://"+d.addr+":9680"+path, token); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if all, err := d.client.Leases(t.Context()); err != nil || len(all) != 100_000 {
		t.Errorf("%d leases, %v", len(all), err)
	}
	peak := d.memory("VmHWM")
	cancel()
	followers.Wait()
	t.Logf("%d browsers, %d pages each: at most %d KiB, now %d KiB", browsers, pages, peak, d.memory("VmRSS"))
	if peak > most {
		t.Errorf("the daemon needed %d KiB, want at most %d", peak, most)
	}
}

// TestImportMemory: an import of 100,000 leases by the admin API, and a lab file that is refused for its size, cost memory only while they are
// read.
func TestImportMemory(t *testing.T) {
	if os.Getenv("BOOTLAB_LONG") == "" {
		t.Skip("BOOTLAB_LONG is not set: imports 100,000 leases")
	}
	const leases = 100_000
	l := newLab(t, "10.103.41")
	l.networks = "  big: {subnet: 10.202.0.0/15, router: 10.202.0.1, pools: {all: {range: 10.202.0.2-10.203.255.250}}}\n"
	l.apart()
	d := start(t, l)
	before := d.memory("VmRSS")
	rows := []byte("ip,mac,expires,hostname\n")
	addr, end := netip.MustParseAddr("10.202.0.2"), time.Now().Add(12*time.Hour).UTC().Format(time.RFC3339)
	for i := range leases {
		rows = fmt.Appendf(rows, "%s,02:02:00:%02x:%02x:%02x,%s,machine-%d\n", addr, byte(i>>16), byte(i>>8), byte(i), end, i)
		addr = addr.Next()
	}
	l.file("leases.csv", rows)
	if out, err := d.bootlab("leases", "import", filepath.Join(l.dir, "leases.csv")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	peak, after := d.memory("VmHWM"), d.memory("VmRSS")
	if peak > 192<<10 {
		t.Errorf("the import needed %d KiB, want at most 192 MiB", peak)
	}
	t.Logf("import of %d leases: %d KiB before, at most %d KiB, %d KiB afterwards", leases, before, peak, after)
	l.replace(l.text() + strings.Repeat("# comment\n", 15<<20/10) + "hosts: {}\n")
	if err := d.reload(); err == nil {
		t.Error("a lab file with hosts twice is applied")
	}
	t.Logf("a lab file of 15 MiB, refused: at most %d KiB, %d KiB afterwards", d.memory("VmHWM"), d.memory("VmRSS"))
	// The daemon reads the file once more by itself, as it has changed.
	d.until("the memory is given back", func() bool { return d.memory("VmRSS") < before+64<<10 })
}

// memoryGroup makes a cgroup with a limit of memory, and returns the command that runs another in it.
func memoryGroup(t *testing.T, limit int) []string {
	t.Helper()
	group, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(group, file)); err != nil {
		group, file = "/sys/fs/cgroup", "memory.max"
	}
	group = filepath.Join(group, fmt.Sprintf("bootlab-test-%d-%d", os.Getpid(), limit))
	if err := os.Mkdir(group, 0o755); err != nil {
		netns.Absent(t, "cgroup", err)
	}
	t.Cleanup(func() { _ = os.Remove(group) })
	if err := os.WriteFile(filepath.Join(group, file), fmt.Append(nil, limit), 0); err != nil {
		netns.Absent(t, "cgroup", err)
	}
	return []string{"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group}
}

// TestConnectionMemory: connections with heads that never end, in a cgroup of 96 MiB, do not end the daemon, and others are served.
func TestConnectionMemory(t *testing.T) {
	if os.Getenv("BOOTLAB_LONG") == "" {
		t.Skip("BOOTLAB_LONG is not set: makes 12,000 connections, to a daemon without the race detector")
	}
	group := memoryGroup(t, 96<<20)
	l := newLab(t, "10.103.42")
	l.balancers = "  web: {listen: \"NET.1:7443\", mode: http, backends: [\"NET.1:7001\"], check: {kind: none}}\n"
	l.write()
	d := start(t, l, group...)
	head := []byte("GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 15<<10))
	var clients sync.WaitGroup
	for _, port := range []string{"8080", "7443"} {
		for range 20 {
			clients.Go(func() {
				for range 300 {
					c, err := net.DialTimeout("tcp", d.addr+":"+port, time.Second)
					if err != nil {
						return // no place: it waits in the kernel
					}
					t.Cleanup(func() { _ = c.Close() })
					_ = c.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = c.Write(head) // it may have been reset for another connection
				}
			})
		}
	}
	clients.Wait()
	t.Logf("at most %d KiB, now %d KiB", d.memory("VmHWM"), d.memory("VmRSS"))
	d.logged("memory limit of the control group")
	resp, err := http.Get("http://" + d.addr + ":8080/files/public/motd")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("another client gets %s", resp.Status)
	}
	if _, err := d.client.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// fillBook adds n leases of machines that are not in the lab to the state database of a daemon that does not run.
func fillBook(t *testing.T, path string, n int) {
	t.Helper()
	s, _, err := logfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	book, err := leasebook.Open(t.Context(), s, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	now, subnet := time.Now(), netip.MustParsePrefix("10.200.0.0/15")
	addr := netip.MustParseAddr("10.200.0.2")
	var changes []*leasebook.Change
	for i := range n {
		changes = append(changes, &leasebook.Change{Subnet: subnet, Lease: leasebook.Lease{
			Addr: addr, MAC: lab.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}, State: leasebook.Active, Start: now, Expiry: now.Add(12 * time.Hour),
			Hostname: fmt.Sprintf("machine-%d", i), ClientID: []byte{1, 2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)},
		}})
		addr = addr.Next()
		if len(changes) == 1000 || i == n-1 {
			book.Commit(t.Context(), changes)
			for _, c := range changes {
				if c.Err != nil {
					t.Fatal(c.Err)
				}
			}
			changes = nil
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// fetch reads a page of the admin API to its end.
func fetch(ctx context.Context, url, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// cpuTime returns what the daemon has used of the processors, in steps of 10 ms.
func (d *daemon) cpuTime() time.Duration {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(b), ") ") // after the name, see proc(5)
	var ticks [2]int
	if _, err := fmt.Sscan(strings.Join(strings.Fields(fields)[11:13], " "), &ticks[0], &ticks[1]); err != nil {
		d.t.Fatal(err)
	}
	return time.Duration(ticks[0]+ticks[1]) * 10 * time.Millisecond
}

// memory returns a line of /proc/PID/status in KiB.
func (d *daemon) memory(key string) int {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	found := regexp.MustCompile(key + `:\s+(\d+) kB`).FindStringSubmatch(string(b))
	if found == nil {
		d.t.Fatalf("no %s in\n%s", key, strings.TrimSpace(string(b)))
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}
