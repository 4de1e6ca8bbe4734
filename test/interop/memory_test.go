package interop

import (
	"context"
	"fmt"
	"io"
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
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// TestDashboardMemory: with 100,000 leases and a hundred open dashboards the daemon needs less than 128 MiB.
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
	d.start()
	t.Logf("after the start: %d KiB, %v of CPU time until it answered", d.memory("VmRSS"), d.cpuTime())
	token, err := d.client.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range browsers {
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
	t.Logf("%d browsers, %d pages each: at most %d KiB, now %d KiB", browsers, pages, peak, d.memory("VmRSS"))
	if peak > most {
		t.Errorf("the daemon needed %d KiB, want at most %d", peak, most)
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
