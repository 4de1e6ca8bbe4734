package interop

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestUnknownMachines: a machine without a pool is listed with the reason, and gets its address once it is adopted. A machine of a pool
// reports its hardware, which is accepted from its own address alone, and printed without control characters.
func TestUnknownMachines(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.93.3")
	l.lan = "    pools: {picky: {range: NET.100-NET.110, mac: [\"02:aa:*:*:*:*\"], profile: discover}}\n"
	l.profiles = "  discover: {os: discover}\n"
	l.write()
	d := start(t, l)
	unknown := func() string {
		t.Helper()
		out, err := d.bootlab("hosts", "--unknown")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}

	const mac = "52:54:00:00:ee:01"
	refused := d.machine(t, mac)
	if addr := refused.lease(t); addr != "" {
		t.Fatalf("a machine that no pool takes got %s", addr)
	}
	if out := unknown(); !strings.Contains(out, mac) || !strings.Contains(out, "no pool of network lan takes this machine") {
		t.Errorf("hosts --unknown:\n%s", out)
	}
	lines, err := d.bootlab("adopt", mac, "--name", "new", "--profile", "install")
	if err != nil {
		t.Fatalf("adopt: %v\n%s", err, lines)
	}
	_, lines, _ = strings.Cut(lines, "hosts:\n")
	if !strings.Contains(lines, "ip: 10.93.3.12\n") { // w1 has .11
		t.Errorf("adopt:\n%s", lines)
	}
	text, err := os.ReadFile(l.path())
	if err != nil {
		t.Fatal(err)
	}
	l.replace(string(text) + lines + "    vars: {secret: s}\n    role: worker\n")
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if addr := refused.lease(t); addr != "10.93.3.12" {
		t.Errorf("once adopted it got %q", addr)
	}
	if out := unknown(); strings.Contains(out, mac) {
		t.Errorf("still unknown:\n%s", out)
	}
	if out, err := d.bootlab("adopt", mac); err == nil || !strings.Contains(out, "it is host new") {
		t.Errorf("adopted twice: %v\n%s", err, out)
	}

	pooled := d.machine(t, "02:aa:00:00:00:01")
	self := pooled.lease(t)
	if self == "" {
		t.Fatal("the unknown machine got no address")
	}
	spy := d.machine(t, "02:bb:00:00:00:01", "10.93.3.66")
	const report = "report/02-aa-00-00-00-01?serial="
	for _, try := range []struct {
		who, from string
		m         *machine
		path      string
		status    int
	}{
		{"another machine for the pool machine", "10.93.3.66", spy, report + "evil", http.StatusForbidden},
		{"the pool machine for another", self, pooled, "report/02-aa-00-00-00-02?serial=evil", http.StatusForbidden},
		{"one without an address for itself", "10.93.3.66", spy, "report/02-bb-00-00-00-01?serial=evil", http.StatusForbidden},
		{"the pool machine", self, pooled, report + "%1b%5b2J%0aA1B2C3%e2%80%ae" + strings.Repeat("x", 1000) + "&product=%00%ff", http.StatusOK},
	} {
		if status, body := try.m.get(try.from, try.path); status != try.status {
			t.Errorf("%s: %d %s", try.who, status, body)
		}
	}
	out := unknown()
	for _, named := range []string{"02:aa:00:00:00:02", "02:bb:00:00:00:01"} {
		if strings.Contains(out, named) {
			t.Errorf("%s was only named in a URL, and counts as captured of", named)
		}
	}
	if strings.Contains(out, "evil") || !strings.Contains(out, "[2J A1B2C3") || len(out) > 2000 || strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("hosts --unknown: %q", out)
	}
	d.shows("machine reported", "timeline", "02:aa:00:00:00:01")
	if story, err := d.bootlab("timeline", "02:aa:00:00:00:01"); err != nil || strings.Contains(story, "\x1b") {
		t.Errorf("its timeline: %v\n%q", err, story)
	}
	if status, body := pooled.get(self, "boot/02-aa-00-00-00-01/boot.ipxe"); status != http.StatusOK || !strings.Contains(body, "bootlab adopt") {
		t.Errorf("its script: %d\n%s", status, body)
	}
	d.shows("it is not in the lab file: it waits until it is adopted", "why", "02:aa:00:00:00:01")
	d.shows("bootlab adopt 02", "why", "02:aa:00:00:00:01")
	d.kill()
	d.start()
	if out := unknown(); !strings.Contains(out, "A1B2C3") {
		t.Errorf("after a kill:\n%s", out)
	}
}

// TestNaksOfMadeUpMachines: who requests an address of a pool under a made-up MAC is refused, and counts as a stranger: the
// log has a few lines, and the timeline of a machine that holds an address of the pool has its own refusal.
func TestNaksOfMadeUpMachines(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.93.4")
	l.lan = "    pools: {guests: {range: NET.100-NET.200, profile: discover}}\n"
	l.profiles = "  discover: {os: discover}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:31").wire(t)
	const machines, most = 600, 129 // see package event
	naks := func() int { return int(d.metric(`bootlab_events_total{kind="dhcp_nak"}`)) }
	request := func(m net.HardwareAddr, last int) *dhcpv4.DHCPv4 {
		return message(dhcpv4.MessageTypeRequest, m, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 93, 4, byte(last)))),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 93, 4, 1))))
	}
	known := mac("02:00:00:00:ff:32")
	held := int(w.bind(known).YourIPAddr.To4()[3])
	sent := 0
	d.until("made-up machines are refused", func() bool {
		for range 50 {
			w.send(request(net.HardwareAddr{2, 0xbe, 0xef, byte(sent >> 16), byte(sent >> 8), byte(sent)}, 100+sent%101), newClient, toServers)
			sent++
		}
		return naks() >= machines
	})
	if h := w.ask(request(known, 100+(held-99)%101)); h.MessageType() != dhcpv4.MessageTypeNak {
		t.Fatalf("the machine gets a second address: %s", h)
	}
	if n := strings.Count(d.log.String(), "msg=dhcp_nak"); n > most+12 {
		t.Errorf("%d lines in the log for %d refusals, want %d at most", n, naks(), most+12)
	}
	d.shows("address is not free for this machine", "timeline", "02-00-00-00-ff-32")
}
