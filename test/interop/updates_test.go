package interop

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

const updateSecret = "pRP5FapFoJ95JEL06sv4PQ=="

// nsupdate sends a script that is signed with the key ed. It gives up after some seconds.
func (d *daemon) nsupdate(seconds string, lines ...string) (string, error) {
	cmd := exec.Command("nsupdate", "-t", seconds, "-y", "hmac-sha256:ed:"+updateSecret)
	cmd.Stdin = strings.NewReader("server " + d.addr + "\n" + strings.Join(lines, "\n") + "\nsend\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// dig returns the answers to a question.
func (d *daemon) dig(args ...string) string {
	out, _ := exec.Command("dig", append([]string{"@" + d.addr, "+short", "+tries=5"}, args...)...).Output()
	return strings.TrimSpace(string(out))
}

// TestDynamicUpdates: what was acknowledged to nsupdate survives a killed daemon, is listed, and can be deleted. Names of hosts are refused.
func TestDynamicUpdates(t *testing.T) {
	netns.Need(t, "nsupdate", "dig")
	t.Parallel()
	l := newLab(t, "10.118.1")
	l.file("secrets/ed.key", []byte("key \"ed\" {\n\talgorithm hmac-sha256;\n\tsecret \""+updateSecret+"\";\n};\n"))
	l.more = `dns:
  keys: {ed: {secret_file: secrets/ed.key}}
  transfer: [NET.0/24]
  notify: []
  zones:
    lab.test: {update: [key ed]}
    dyn.example: {update: [NET.0/24 key ed]}
`
	l.write()
	d := start(t, l)
	if out, err := d.nsupdate("60", "update add w0.lab.test. 60 TXT x"); err == nil || !strings.Contains(out, "REFUSED") {
		t.Errorf("a host's name: %v %s", err, out)
	}
	if out, err := d.nsupdate("60", "update add _acme-challenge.w0.lab.test. 60 TXT token"); err != nil {
		t.Errorf("a challenge: %v %s", err, out)
	}
	var mu sync.Mutex
	acked := map[string]string{}
	for round := range 4 {
		var load sync.WaitGroup
		for w := range 3 {
			load.Go(func() {
				for i := range 40 {
					name, addr := fmt.Sprintf("n%d-%d-%d.dyn.example.", round, w, i), fmt.Sprintf("192.0.2.%d", i)
					if _, err := d.nsupdate("3", "prereq nxdomain "+name, "update add "+name+" 60 A "+addr); err != nil {
						return
					}
					mu.Lock()
					acked[name] = addr
					mu.Unlock()
				}
			})
		}
		d.until("an update", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 4*round })
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		d.kill()
		load.Wait()
		d.start()
		for name, addr := range acked {
			if got := d.dig(name); got != addr {
				t.Errorf("round %d: %s is %q, want %s", round, name, got, addr)
			}
		}
	}
	t.Logf("%d updates were acknowledged", len(acked))
	serial := d.dig("dyn.example.", "SOA")
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if got := d.dig("dyn.example.", "SOA"); got != serial {
		t.Errorf("SOA %s after a reload, want %s", got, serial)
	}
	list, err := d.bootlab("dns", "updates")
	if err != nil || strings.Count(list, "key ed") < len(acked)+1 {
		t.Errorf("%v, %d acknowledged:\n%s", err, len(acked), list)
	}
	for _, args := range [][]string{{"plan"}, {"plan", "--zones", "dyn.example"}} {
		if out, err := d.bootlab(args...); err != nil || strings.Count(out, "dynamic update, key ed") < len(acked) {
			t.Errorf("%v: %v, want the %d names that were acknowledged:\n%s", args, err, len(acked), out)
		}
	}
	if out, err := d.bootlab("plan", "--diff"); err != nil {
		t.Errorf("plan --diff without a change: %v\n%s", err, out)
	}
	if out, err := d.bootlab("resolve", "_acme-challenge.w0.lab.test", "TXT"); err != nil || !strings.Contains(out, "from dynamic update, key ed") {
		t.Errorf("resolve: %v\n%s", err, out)
	}
	if got := d.dig("dyn.example.", "AXFR"); strings.Count(got, "192.0.2.") < len(acked) {
		t.Errorf("the zone has fewer records than were acknowledged:\n%s", got)
	}
	remove := []string{"dns", "updates", "delete", "_acme-challenge.w0.lab.test", "TXT"}
	if out, err := d.bootlab(remove...); err == nil || !strings.Contains(out, "nothing was changed: standard input is no terminal to ask on; --yes deletes without asking") {
		t.Errorf("without a terminal: %v %s", err, out)
	}
	if out := d.terminal("n", remove...); !strings.Contains(out, "_acme-challenge.w0.lab.test.") || !strings.Contains(out, "made at _acme-challenge.w0.lab.test TXT? [y/N]") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("after the answer no: %s", out)
	}
	if got := d.dig("_acme-challenge.w0.lab.test.", "TXT"); got == "" {
		t.Error("a record is gone that nobody deleted")
	}
	if out := d.terminal("y", remove...); !strings.Contains(out, "RRsets deleted: 1") {
		t.Errorf("after the answer yes: %s", out)
	}
	if got := d.dig("_acme-challenge.w0.lab.test.", "TXT"); got != "" {
		t.Errorf("a deleted record is answered: %s", got)
	}
}
