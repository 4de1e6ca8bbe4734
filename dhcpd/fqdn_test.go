package dhcpd

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// inLabTest is the names in DNS of lab.test, where the lab has the name api.
func inLabTest(hostname string) string {
	if hostname == "" || hostname == "api" {
		return ""
	}
	return hostname + ".lab.test."
}

// TestFQDNIsTheNameInDNS: option 81 of a reply has the name that leads to the client, and none where the lab or another client has it (RFC
// 4702 section 4), also if two clients of one name are stored at once.
func TestFQDNIsTheNameInDNS(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.smallPool(t, "10.77.0.250")
	named := func(name string) dhcpv4.Modifier { return raw(81, "\x01\x00\x00"+name) }
	said := func(out []packetOut) (all []string) {
		for _, o := range out {
			all = append(all, string(decode(t, o.data).Options.Get(dhcpv4.OptionFQDN)))
		}
		return all
	}
	send := func(kind dhcpv4.MessageType, m lab.MAC, name string, more ...dhcpv4.Modifier) []string {
		return said(b.exchange("lab0", 67, client0, message(t, kind, m, udhcpc, append(more, named(name))...)))
	}
	want := func(when string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	const none, box, twin = "\x0a\xff\xff", "\x01\xff\xffbox.lab.test", "\x01\xff\xfftwin.lab.test"
	chosen := func(addr string) []dhcpv4.Modifier {
		return []dhcpv4.Modifier{withRequested(addr), withServer("10.77.0.1")}
	}

	want("an offer", send(dhcpv4.MessageTypeDiscover, madeUp(1), "box"), box)
	addr := b.ask(t, madeUp(1))
	want("a lease", send(dhcpv4.MessageTypeRequest, madeUp(1), "box", chosen(addr)...), box)
	want("a lease that goes on", send(dhcpv4.MessageTypeRequest, madeUp(1), "box", withCiaddr(addr)), box)
	want("another name", send(dhcpv4.MessageTypeRequest, madeUp(1), "twin", withCiaddr(addr)), twin)
	want("its first name again", send(dhcpv4.MessageTypeRequest, madeUp(1), "box", withCiaddr(addr)), box)
	want("without a name it keeps its own", send(dhcpv4.MessageTypeRequest, madeUp(1), "", withCiaddr(addr)), box)
	want("options alone", send(dhcpv4.MessageTypeInform, madeUp(1), "other", withCiaddr(addr)), box)
	want("options alone, without a lease", send(dhcpv4.MessageTypeInform, madeUp(9), "other", withCiaddr("10.77.0.9")), none)
	want("an offer to another client of that name", send(dhcpv4.MessageTypeDiscover, madeUp(2), "box"), none)
	want("its lease", send(dhcpv4.MessageTypeRequest, madeUp(2), "box", chosen(b.ask(t, madeUp(2)))...), none)
	want("a name of the lab", send(dhcpv4.MessageTypeDiscover, madeUp(3), "api"), none)
	want("no host name", send(dhcpv4.MessageTypeDiscover, madeUp(3), "-x.lab.test"), none)

	at := map[int]string{4: b.ask(t, madeUp(4)), 5: b.ask(t, madeUp(5))}
	for n := 4; n <= 5; n++ {
		x := &exchange{iface: "lab0", port: 67, from: netip.MustParseAddrPort(client0), out: b.wire}
		b.handle(x, message(t, dhcpv4.MessageTypeRequest, madeUp(n), udhcpc, append(chosen(at[n]), named("twin"))...))
	}
	b.wire.sent = nil
	b.commitQueued()
	want("two clients that are stored at once", said(b.wire.sent), twin, none)
}

// TestReloadDuringARequest: the name in a reply is of the lab that the request was answered from, though another one is in force since.
func TestReloadDuringARequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.smallPool(t, "10.77.0.250")
	of := func(domain string) *Table {
		return b.table.WithNames(func(hostname string) string { return hostname + domain })
	}
	inForce := []*Table{of(".before."), of(".after.")}
	b.deps.Table = func() *Table {
		t := inForce[0]
		inForce = inForce[len(inForce)-1:]
		return t
	}
	for _, want := range []string{"\x01\xff\xffbox.before", "\x01\xff\xffbox.after"} {
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, madeUp(1), udhcpc, raw(81, "\x01\x00\x00box")))
		if got := string(decode(t, out[0].data).Options.Get(dhcpv4.OptionFQDN)); got != want {
			t.Errorf("option 81 is %q, want %q", got, want)
		}
	}
}
