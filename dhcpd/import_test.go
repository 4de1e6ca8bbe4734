package dhcpd

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/lab"
)

// imported returns a lease of another server that ends after d; 0 is never.
func imported(t testing.TB, b *bench, m, addr string, d time.Duration) *Import {
	t.Helper()
	l := &Import{Lease: leases.Lease{Addr: ip(addr), MAC: mac(t, m), Hostname: "Some.Name"}}
	if d != 0 {
		l.Expiry = b.clock.Now().Add(d)
	}
	return l
}

// TestImport: a lease of another server is taken over if this server would renew it, and no lease of this server's ends.
func TestImport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	here := b.lease(t, other, udhcpc) // 10.77.0.201 or the like
	const strange = "02:00:00:00:00:41"
	all := []*Import{}
	want := []string{}
	add := func(m, addr string, d time.Duration, outcome string) {
		t.Helper()
		all, want = append(all, imported(t, b, m, addr, d)), append(want, addr+" "+m+": "+outcome)
	}
	free := "10.77.0.203"
	if here == free {
		free = "10.77.0.202"
	}
	add(strange, free, time.Hour, "")
	add("52:54:00:00:00:42", "10.77.0.130", 0, "")
	add("52:54:00:00:02:02", "10.77.0.21", time.Hour, "") // master-0, by its second NIC
	add("02:00:00:00:00:50", "10.78.1.1", time.Hour, "")
	add("02:00:00:00:00:51", "10.78.1.2", -time.Second, "expired it ended")
	add("02:00:00:00:00:52", "10.99.0.1", time.Hour, "outside the address is in no network of the lab")
	add("02:00:00:00:00:53", "10.79.0.50", time.Hour, "outside bootlab gives no addresses in network beside")
	add("02:00:00:00:00:54", "10.80.0.50", time.Hour, "outside bootlab gives no addresses in network silent")
	add("02:00:00:00:00:55", "10.77.0.50", time.Hour, "no pool no pool of network main has the address")
	add("02:00:00:00:00:56", "10.77.0.132", time.Hour, "no pool pool bootstrap is not for this MAC")
	add("02:00:00:00:00:57", "10.77.0.21", time.Hour, "reserved the address is reserved for master-0")
	add("02:00:00:00:00:58", "10.77.0.131", time.Hour, "reserved the address is reserved for master-1")
	add("52:54:00:00:02:01", "10.77.0.133", time.Hour, "reserved 10.77.0.21 is reserved for this machine, master-0")
	add("02:00:00:00:00:59", "10.77.0.200", time.Hour, "reserved the address is that of a host without a MAC, a router, a server or the appliance")
	add("02:00:00:00:00:60", "10.78.1.1", time.Minute, "double the file has a lease of this address for 02:00:00:00:00:50 that ends later")
	add("02:00:00:00:00:50", "10.78.1.3", time.Minute, "double the file has a lease of 10.78.1.1 for this machine that ends later")
	add("02:00:00:00:00:61", here, time.Hour, "leased the address is leased to "+other)
	add(other, "10.78.1.4", time.Hour, "") // another network
	check := func(mode ImportMode) {
		t.Helper()
		for i, l := range all {
			got := l.Addr.String() + " " + l.MAC.String() + ": " + strings.TrimSpace(string(l.Skipped)+" "+l.Why)
			if !strings.HasPrefix(got, want[i]) || strings.HasSuffix(want[i], ": ") && got != want[i] {
				t.Errorf("%+v: %s, want %s", mode, got, want[i])
			}
		}
	}
	before := b.deps.Book.All()
	b.Import(t.Context(), all, ImportMode{Check: true})
	check(ImportMode{Check: true})
	if diff := cmp.Diff(len(before), len(b.deps.Book.All())); diff != "" {
		t.Errorf("a check changed the book: %s", diff)
	}
	for i := range all {
		all[i].Skipped, all[i].Why = "", ""
	}
	b.Import(t.Context(), all, ImportMode{})
	check(ImportMode{})
	b.reopen(t) // what is durable
	for i, l := range all {
		got, ok := b.deps.Book.ByAddr(l.Addr)
		if imported := strings.HasSuffix(want[i], ": "); ok && got.MAC == l.MAC != imported {
			t.Errorf("%s: the book has %+v", want[i], got)
		}
	}
	if l, _ := b.deps.Book.ByAddr(ip(free)); l.Hostname != "some" || !l.Expiry.Equal(b.clock.Now().Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("%+v", l)
	}
	if l, _ := b.deps.Book.ByAddr(ip("10.77.0.130")); l.Expiry.Year() != 2106 {
		t.Errorf("a lease that does not end has %v", l.Expiry)
	}
	if again := b.lease(t, strange, udhcpc); again != free {
		t.Errorf("the imported machine gets %s, had %s", again, free)
	}
}

// TestImportReplace: leases of this server end only if that is asked for.
func TestImportReplace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	here := b.lease(t, other, udhcpc)
	const third = "02:00:00:00:00:41"
	there := b.lease(t, third, udhcpc)
	in := func() []*Import {
		return []*Import{imported(t, b, third, here, time.Hour)} // the address of one, the machine of another
	}
	kept := in()
	b.Import(t.Context(), kept, ImportMode{})
	if kept[0].Skipped != SkipLeased || kept[0].Ended {
		t.Errorf("%+v", kept[0])
	}
	replaced := in()
	b.Import(t.Context(), replaced, ImportMode{Replace: true})
	if replaced[0].Skipped != "" || !replaced[0].Ended {
		t.Errorf("%+v", replaced[0])
	}
	if l, ok := b.deps.Book.ByAddr(ip(here)); !ok || l.MAC != mac(t, third) {
		t.Errorf("%s has %+v", here, l)
	}
	if l, ok := b.deps.Book.ByAddr(ip(there)); ok {
		t.Errorf("the machine still has %+v", l)
	}
	if l, ok := b.deps.Book.ByMAC(mac(t, other)); ok {
		t.Errorf("the other machine still has %+v", l)
	}
}

// FuzzImport: whatever is imported, each lease that the book has afterwards is one that this server gives: in a pool or at the
// machine's own reservation, one machine an address, one address a machine and network.
func FuzzImport(f *testing.F) {
	f.Add([]byte{10, 77, 0, 201, 1, 0, 10, 77, 0, 21, 2, 9, 10, 79, 0, 3, 3, 1, 10, 77, 0, 133, 4, 200}, false)
	f.Fuzz(func(t *testing.T, data []byte, replace bool) {
		b := newBench(t)
		b.lease(t, other, udhcpc)
		macs := []lab.MAC{mac(t, other)}
		for m := range b.table.hosts {
			macs = append(macs, m)
		}
		for i := range 8 {
			macs = append(macs, lab.MAC{2, 0, 0, 0, 9, byte(i)}, lab.MAC{0x52, 0x54, 0, 1, 1, byte(i)})
		}
		var all []*Import
		for ; len(data) >= 6 && len(all) < 64; data = data[6:] {
			l := &Import{Lease: leases.Lease{Addr: netip.AddrFrom4([4]byte(data)), MAC: macs[int(data[4])%len(macs)]}}
			if d := int8(data[5]); d != 0 {
				l.Expiry = b.clock.Now().Add(time.Duration(d) * time.Minute)
			}
			all = append(all, l)
		}
		b.Import(t.Context(), all, ImportMode{Replace: replace})
		machines := map[string]bool{}
		for _, l := range b.deps.Book.All() {
			sc := scopeOf(b.table.scopes, l.Addr)
			if sc == nil || !sc.serves() {
				t.Fatalf("%+v is in no network that is served", l)
			}
			h, p := b.table.hosts[l.MAC], sc.poolHolding(l.Addr)
			own := h.reserved() && h.IP == l.Addr
			if !own && (p == nil || !p.Admits(l.MAC) || !b.table.poolMayGive(l.Addr)) {
				t.Fatalf("%+v is neither a pool's nor reserved for its machine", l)
			}
			if key := l.MAC.String() + sc.network.Name; machines[key] {
				t.Fatalf("%s has two addresses in %s", l.MAC, sc.network.Name)
			} else {
				machines[key] = true
			}
		}
		for _, l := range all {
			if got, ok := b.deps.Book.ByAddr(l.Addr); l.Skipped == "" && (!ok || got.MAC != l.MAC) {
				t.Fatalf("%+v was imported, the book has %+v", l, got)
			}
		}
	})
}
