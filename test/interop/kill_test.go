package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// killed is what the daemon has acknowledged over its lives: each ends with kill -9.
type killed struct {
	mu     sync.Mutex
	leases map[string]string // MAC -> address
	owners map[string]string // address -> MAC
	states map[string][]string
	acks   int
}

// TestKilledDaemon kills the daemon at random moments, 10,000 times in make test-long, while machines lease and release addresses and
// install themselves. No lease that was acknowledged is lost, no address has two owners, and every install state is the one that was
// acknowledged last, or one that was asked for since.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	const hosts, leasers, second = 8, 16, 118
	rounds := storetest.Rounds(20, 10_000)
	l := wide(t, "10.90.3", second)
	l.networks = strings.Replace(l.networks, "pools:", "probe: false, pools:", 1) // nobody answers: leases come at full speed
	for i := range hosts {
		l.hosts += fmt.Sprintf("  m%[1]d: {mac: \"52:54:00:00:02:%02[1]x\", ip: NET.%[2]d, role: worker, profile: install, vars: {secret: s}}\n", i, 20+i)
	}
	l.write()
	d := start(t, l)
	var own []string
	for i := range hosts {
		own = append(own, fmt.Sprintf("%s.%d", l.net, 20+i))
	}
	m := d.machine(t, "52:54:00:00:ff:03", append(own, l.net+".2")...)
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", fmt.Sprintf("10.%d.0.2/16", second), "dev", "eth0")
	d.behindRouter(t, l.net+".2", own[0], hosts)
	relay := m.relay(t, fmt.Sprintf("10.%d.0.2", second))
	k := &killed{leases: map[string]string{}, owners: map[string]string{}, states: map[string][]string{}}
	for round := range rounds {
		before := k.acks
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for w := range leasers {
			load.Go(func() { k.lease(t, ctx, relay, w, leasers) })
		}
		for i := range 2 {
			host := (2*round + i) % hosts
			load.Go(func() { k.install(ctx, d, m, host, own[host]) })
		}
		d.until("leases", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.acks >= before+leasers })
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // the moment of the kill
		d.kill()
		cancel()
		relay.serverGone(t)
		load.Wait()
		relay.gone = make(chan struct{})
		d.log = &output{}
		d.start()
		k.check(t, d)
		if t.Failed() {
			t.Fatalf("in round %d of %d", round+1, rounds)
		}
	}
	t.Logf("%d kills, %d leases acknowledged, %d of them held at the end", rounds, k.acks, len(k.leases))
}

// answerWithin is how long a machine waits for an answer: one that is killed gives none.
const answerWithin = 250 * time.Millisecond

// lease leases addresses for machines, again and again, and releases some.
func (k *killed) lease(t *testing.T, ctx context.Context, r *relay, first, step int) {
	const machines = 2000
	for ctx.Err() == nil {
		mac := numbered(rand.IntN(machines/step)*step + first) // those of this goroutine alone
		k.mu.Lock()
		held, is := k.leases[mac.String()]
		if is && rand.IntN(2) == 0 {
			delete(k.leases, mac.String()) // before the daemon is asked
			delete(k.owners, held)
			k.mu.Unlock()
			release, err := dhcpv4.New(dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease), dhcpv4.WithClientIP(net.ParseIP(held).To4()))
			if err == nil {
				release.UpdateOption(dhcpv4.OptServerIdentifier(r.server.IP))
				release.GatewayIPAddr = r.self
				_, _ = r.conn.WriteTo(release.ToBytes(), r.server) // a packet that is lost releases nothing
			}
			continue
		}
		k.mu.Unlock()
		addr, err := r.lease(mac, answerWithin)
		if err != nil {
			continue
		}
		k.mu.Lock()
		if is && addr != held {
			t.Errorf("%s held %s and was given %s", mac, held, addr)
		}
		if other, taken := k.owners[addr]; taken && other != mac.String() {
			t.Errorf("%s was given to %s and to %s", addr, other, mac)
		}
		k.leases[mac.String()], k.owners[addr] = addr, mac.String()
		k.acks++
		k.mu.Unlock()
	}
}

// install arms a host and plays its installer. The states of a host are the one that was acknowledged last, and those asked for since.
func (k *killed) install(ctx context.Context, d *daemon, m *machine, i int, addr string) {
	host, mac := fmt.Sprintf("m%d", i), fmt.Sprintf("52-54-00-00-02-%02x", i)
	step := func(asked []string, do func() bool, acked string) bool {
		k.mu.Lock()
		k.states[host] = append(k.states[host], asked...)
		k.mu.Unlock()
		if ctx.Err() != nil || !do() {
			return false
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.states[host] = append([]string{acked}, asked...)
		return true
	}
	var config, done string
	if !step([]string{"armed"}, func() bool { _, err := d.client.Install(ctx, host, api.CycleLater); return err == nil }, "armed") {
		return
	}
	// The boot begins when the script is received, which the daemon need not have noticed yet.
	if !step([]string{"booting"}, func() (ok bool) { var err error; config, done, err = m.script(addr, mac); return err == nil }, "armed") {
		return
	}
	read := func() bool { status, _ := m.get(addr, config); return status == http.StatusOK }
	if !step([]string{"booting", "installing"}, read, "booting") {
		return
	}
	step([]string{"installing", "installed"}, func() bool { status, _ := m.get(addr, done); return status == http.StatusOK }, "installed")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states[host][0] == "installed" {
		k.states[host] = []string{"installed"}
	}
}

// check compares what the daemon has after a kill with what was acknowledged.
func (k *killed) check(t *testing.T, d *daemon) {
	t.Helper()
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book, owners := map[string]string{}, map[string]string{}
	for _, l := range leases {
		if !l.Holds() {
			continue
		}
		if other, twice := owners[l.IP.String()]; twice {
			t.Errorf("%s has two owners: %s and %s", l.IP, other, l.MAC)
		}
		book[l.MAC.String()], owners[l.IP.String()] = l.IP.String(), l.MAC.String()
	}
	for mac, addr := range k.leases {
		if book[mac] != addr {
			t.Errorf("%s was given %s; the lease book has %q", mac, addr, book[mac])
		}
	}
	hosts, err := d.client.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if may := k.states[h.Name]; may != nil && !slices.Contains(may, h.Install) {
			t.Errorf("%s is %s, want one of %v", h.Name, h.Install, may)
		}
		if k.states[h.Name] != nil {
			k.states[h.Name] = []string{h.Install}
		}
	}
	s := d.status()
	slow := func(problem string) bool { return strings.Contains(problem, "machines wait for their leases") } // of a busy machine
	if problems := slices.DeleteFunc(s.Store.Problems, slow); len(problems) > 0 || s.StateLost != "" {
		t.Errorf("problems of the state: %v %s", problems, s.StateLost)
	}
}
