package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// acknowledged is what the daemon acknowledged, and must not lose.
type acknowledged struct {
	mu      sync.Mutex
	leases  map[string]string // MAC -> address
	states  map[string]string // host -> booting or installed
	tickets map[string]string // host -> path of the document that its boot may still fetch
}

func (a *acknowledged) do(f func()) { a.mu.Lock(); defer a.mu.Unlock(); f() }

// TestKilledInLoad kills the daemon at random moments, in the middle of leases and installations. All that it had acknowledged must hold
// afterwards.
func TestKilledInLoad(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.90.1")
	const hosts, rounds = 24, 4
	for i := range hosts {
		l.hosts += fmt.Sprintf("  m%[1]d: {mac: \"52:54:00:00:01:%02[1]x\", ip: NET.%[2]d, role: worker, profile: install, vars: {secret: s}}\n", i, 20+i)
	}
	l.more = ""
	l.write()
	d := start(t, l)
	var own []string
	for i := range hosts {
		own = append(own, fmt.Sprintf("%s.%d", l.net, 20+i))
	}
	m := d.machine(t, "52:54:00:00:ff:01", append(own, l.net+".2")...)
	d.behindRouter(t, l.net+".2", own[0], hosts)
	relay := m.relay(t, l.net+".2")
	acked := &acknowledged{leases: map[string]string{}, states: map[string]string{}, tickets: map[string]string{}}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for w := range 4 {
			load.Go(func() { leases(ctx, relay, acked, round*1000+w*30) })
		}
		for i := round; i < hosts; i += rounds {
			load.Go(func() { install(ctx, m, acked, i, own[i]) })
		}
		d.until("a lease and an install state", func() (some bool) {
			acked.do(func() { some = len(acked.leases) > round && len(acked.states) > round })
			return some
		})
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		d.kill()
		cancel()
		load.Wait()
		d.start()
		acked.check(t, d, m)
	}
	t.Logf("%d leases, %d hosts, %d documents read after a power cut", len(acked.leases), len(acked.states), len(acked.tickets))
}

func leases(ctx context.Context, r *relay, acked *acknowledged, first int) {
	for n := first; n < first+30 && ctx.Err() == nil; n++ {
		mac := numbered(n)
		if addr, err := r.lease(mac, time.Second); err == nil {
			acked.do(func() { acked.leases[mac.String()] = addr })
		}
	}
}

// install plays the installer of a host; every other one has only its script at the kill.
func install(ctx context.Context, m *machine, acked *acknowledged, i int, addr string) {
	host, mac := fmt.Sprintf("m%d", i), fmt.Sprintf("52-54-00-00-01-%02x", i)
	for ctx.Err() == nil {
		config, done, err := m.script(addr, mac)
		if err != nil {
			continue
		}
		acked.do(func() { acked.states[host] = "armed" }) // the boot begins once the script is sent, or with the use of its token
		if i%2 == 1 {
			acked.do(func() { acked.tickets[host] = addr + " " + config })
			return
		}
		if status, _ := m.get(addr, config); status != http.StatusOK {
			return
		}
		if status, _ := m.get(addr, done); status == http.StatusOK {
			acked.do(func() { acked.states[host] = "installed" })
		}
		return
	}
}

func (a *acknowledged) check(t *testing.T, d *daemon, m *machine) {
	t.Helper()
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book := map[string]string{}
	for _, l := range leases {
		book[l.MAC.String()] = l.IP.String()
	}
	for mac, addr := range a.leases {
		if book[mac] != addr {
			t.Errorf("%s was given %s; the lease book has %q", mac, addr, book[mac])
		}
	}
	order := []string{"armed", "booting", "installing", "installed"}
	hosts, err := d.client.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if acked, ok := a.states[h.Name]; ok && slices.Index(order, h.Install) < slices.Index(order, acked) {
			t.Errorf("%s was %s and is %s", h.Name, acked, h.Install)
		}
	}
	for host, ticket := range a.tickets {
		if a.states[host] == "installing" {
			continue
		}
		addr, config, _ := strings.Cut(ticket, " ")
		if status, body := m.get(addr, config); status != http.StatusOK {
			t.Errorf("%s has the token of its boot and gets %d %s", host, status, body)
		}
		d.logged("install_started host=" + host + " ")
		a.states[host] = "installing"
	}
}

// TestTimelineOutlivesPowerCuts: events that are older than the second in which a timeline is saved survive a kill. A slow machine may
// need longer, so the wait grows.
func TestTimelineOutlivesPowerCuts(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	d := start(t, newLab(t, "10.90.2"))
	m := d.machine(t, "52:54:00:00:00:10")
	wait := 1500 * time.Millisecond
	d.until("a timeline survives a kill", func() bool {
		addr := m.lease(t)
		if _, _, err := m.script(addr, "52-54-00-00-00-10"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		wait *= 2
		d.kill()
		d.start()
		out, err := d.bootlab("timeline", "w0")
		return err == nil && strings.Contains(out, "dhcp ack") && strings.Contains(out, "script served")
	})
}
