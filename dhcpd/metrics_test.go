package dhcpd

import (
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/dhcpd/wire"

	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"log/slog"
)

// TestMetrics: the numbers of pools are those of networks in which this server gives the addresses.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	beside := b.table.scopes[0]
	beside.pools = append(beside.pools, b.table.scopes[2].pools...)
	b.lease(t, master0, ovmf)
	b.lease(t, other, udhcpc)
	b.exchange("lab0", 67, client0, []byte("noise"))
	want := `
# HELP bootlab_dhcpd_leases Leases that have not expired.
# TYPE bootlab_dhcpd_leases gauge
bootlab_dhcpd_leases{network="beside"} 0
bootlab_dhcpd_leases{network="far"} 0
bootlab_dhcpd_leases{network="main"} 2
bootlab_dhcpd_leases{network="silent"} 0
# HELP bootlab_dhcpd_pool_addresses Addresses that a pool may give, free or leased.
# TYPE bootlab_dhcpd_pool_addresses gauge
bootlab_dhcpd_pool_addresses{network="far",pool="all"} 65277
bootlab_dhcpd_pool_addresses{network="main",pool="bootstrap"} 5
bootlab_dhcpd_pool_addresses{network="main",pool="guests"} 3
# HELP bootlab_dhcpd_pool_free_addresses Addresses of a pool that a new client can get.
# TYPE bootlab_dhcpd_pool_free_addresses gauge
bootlab_dhcpd_pool_free_addresses{network="far",pool="all"} 65277
bootlab_dhcpd_pool_free_addresses{network="main",pool="bootstrap"} 5
bootlab_dhcpd_pool_free_addresses{network="main",pool="guests"} 2
`
	if err := testutil.GatherAndCompare(b.registry, strings.NewReader(want), MetricLeases, MetricPool, MetricFree); err != nil {
		t.Error(err)
	}
	for name, got := range map[string]float64{
		"received discover": testutil.ToFloat64(b.m.received[wire.Discover]) - 2,
		"sent ack":          testutil.ToFloat64(b.m.sent[wire.Ack]) - 2,
		"dropped malformed": testutil.ToFloat64(b.m.dropped[dropMalformed]) - 1,
		"dropped panic":     testutil.ToFloat64(b.m.dropped[dropPanic]),
	} {
		if got != 0 {
			t.Errorf("%s is off by %v", name, got)
		}
	}
}

// TestDocumented: every metric and every reason stands in the page that users read.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/dhcp.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{MetricReceived, MetricSent, MetricDropped, MetricCommit, MetricLeases, MetricPool, MetricFree, MetricProbes, MetricRogue, MetricOmitted, MetricRA}
	for r := dropNone + 1; r < dropReasons; r++ {
		names = append(names, r.String())
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/dhcp.md does not mention `%s`", name)
		}
	}
}

// TestPanicIsContained: a bug in what the server leans on costs one packet.
func TestPanicIsContained(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	all, err := panics.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.panics = all.Server("dhcpd")
	b.deps.Table = func() *Table { panic("a bug") }
	if out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), ovmf)); len(out) != 0 {
		t.Errorf("%d replies, want none", len(out))
	}
	b.deps.Table = func() *Table { return b.table }
	if n := all.Counts()["dhcpd"].N; n != 1 {
		t.Errorf("%d panics of the server counted, want 1", n)
	}
	if n := testutil.ToFloat64(b.m.dropped[dropPanic]); n != 1 {
		t.Errorf("%v panics counted, want 1", n)
	}
	if got := b.lease(t, master0, udhcpc); got != "10.77.0.21" {
		t.Errorf("the next packet got %q", got)
	}
}
