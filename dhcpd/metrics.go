package dhcpd

import (
	"fmt"
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"

	"github.com/prometheus/client_golang/prometheus"
)

// Keys of log attributes.
const (
	keyMAC     = "mac"
	keyAddr    = "addr"
	keyErr     = "err"
	keyDur     = "dur"
	keyIface   = "iface"
	keyNetwork = "network"
)

// Names of metrics.
const (
	MetricReceived = "bootlab_dhcpd_packets_received_total"
	MetricSent     = "bootlab_dhcpd_packets_sent_total"
	MetricDropped  = "bootlab_dhcpd_packets_dropped_total"
	MetricCommit   = "bootlab_dhcpd_commit_duration_seconds"
	MetricLeases   = "bootlab_dhcpd_leases"
	MetricPool     = "bootlab_dhcpd_pool_addresses"
	MetricFree     = "bootlab_dhcpd_pool_free_addresses"
	MetricProbes   = "bootlab_dhcpd_probes_total"
	MetricRogue    = "bootlab_dhcpd_rogue_replies_total"
	MetricOmitted  = "bootlab_dhcpd_options_omitted_total"
	MetricNoDisk   = "bootlab_dhcpd_acks_without_disk_total"
	MetricRA       = "bootlab_dhcpd_router_advertisements_total"
)

// A dropReason says why a packet got no answer. The set is closed: it is a label.
type dropReason uint8

const (
	dropNone        dropReason = iota
	dropMalformed              // not a DHCP packet, or one whose reply would go to a broadcast address
	dropNotRequest             // a reply, or no message type (BOOTP)
	dropHardware               // not an Ethernet address
	dropHops                   // RFC 1542 section 4.1.1: more than 16 relays
	dropNoNetwork              // from a subnet that the lab does not know
	dropOff                    // dhcp: off, of the network or the host
	dropNoServer               // the appliance has no address in this network yet
	dropUnknownType            // a message that a server does not answer
	dropRefused                // no address for this machine
	dropLimited                // the first DISCOVER of a new client during a flood, or a client that declines too many addresses
	dropNotOurs                // meant for another server
	dropForged                 // a DHCPRELEASE or DHCPDECLINE in the name of another machine
	dropNotBoot                // proxy mode: not a machine that boots from here
	dropBusy                   // the queue of commits is full
	dropCommit                 // the commit failed: no reply, the client asks again
	dropSend                   // the kernel refused the reply
	dropPanic                  // our bug, contained
	dropReasons
)

// String returns the value of the label.
func (r dropReason) String() string {
	return [dropReasons]string{
		"none", "malformed", "not_request", "hardware", "hops", "no_network", "off", "no_server", "unknown_type", "refused",
		"limited", "not_ours", "forged", "not_boot", "busy", "commit", "send", "panic",
	}[r]
}

const messageTypes = 9 // 0 is for types that RFC 2131 does not define

func typeName(t wire.MessageType) string {
	if t == 0 {
		return "other"
	}
	return t.String()
}

func typeIndex(t wire.MessageType) int {
	if int(t) >= messageTypes {
		return 0
	}
	return int(t)
}

// metrics are counters looked up once, so that a packet costs no lookup.
type metrics struct {
	received, sent [messageTypes]prometheus.Counter
	dropped        [dropReasons]prometheus.Counter
	commit         prometheus.Histogram
	advertisements prometheus.Counter
	rogue          prometheus.Counter
	omitted        prometheus.Counter
	unstored       prometheus.Counter
}

// newMetrics makes the server's metrics and registers them.
func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	received := vec(MetricReceived, "DHCP packets received, by message type.", "type")
	sent := vec(MetricSent, "DHCP packets sent, by message type.", "type")
	dropped := vec(MetricDropped, "DHCP packets that got no reply, by reason.", "reason")
	m := &metrics{
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: MetricCommit, Help: "Time to write a batch of leases to the store.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
		}),
		advertisements: counter(MetricRA, "IPv6 router solicitations answered with an advertisement without a router."),
		rogue:          counter(MetricRogue, "Replies of other DHCP servers on interfaces with dhcp: server."),
		omitted:        counter(MetricOmitted, "Options left out of replies because the reply would be too long for the client."),
		unstored:       counter(MetricNoDisk, "DHCPACKs of reservations and renewals that were sent before the disk had stored them, because it is slow or fails."),
	}
	collectors := []prometheus.Collector{received, sent, dropped, m.commit, m.advertisements, m.rogue, m.omitted, m.unstored, newBookCollector(s)}
	for result, value := range map[string]func(segment.ProberStats) uint64{
		"in_use":   func(p segment.ProberStats) uint64 { return p.InUse },
		"free":     func(p segment.ProberStats) uint64 { return p.Free },
		"unprobed": func(p segment.ProberStats) uint64 { return p.Unprobed + s.unprobed.Load() },
	} {
		collectors = append(collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: MetricProbes, Help: "Addresses probed by ARP or ping before a pool gives them, by result.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(value(s.prober.Stats())) }))
	}
	for i := range m.received {
		m.received[i] = received.WithLabelValues(typeName(wire.MessageType(i)))
		m.sent[i] = sent.WithLabelValues(typeName(wire.MessageType(i)))
	}
	for i := dropNone + 1; i < dropReasons; i++ {
		m.dropped[i] = dropped.WithLabelValues(i.String())
	}
	for _, c := range collectors {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register DHCP metrics: %w", err)
		}
	}
	return m, nil
}

// A bookCollector counts leases when it is scraped. Networks and pools are the lab's, so the labels are a closed set.
type bookCollector struct {
	table              func() *Table
	book               *leases.Book
	pools              func(*Table) []PoolUse
	leases, size, free *prometheus.Desc
}

func newBookCollector(s *Server) *bookCollector {
	return &bookCollector{
		table: s.deps.Table, book: s.deps.Book, pools: s.Pools,
		leases: prometheus.NewDesc(MetricLeases, "Leases that have not expired.", []string{"network"}, nil),
		size:   prometheus.NewDesc(MetricPool, "Addresses that a pool may give, free or leased.", []string{"network", "pool"}, nil),
		free:   prometheus.NewDesc(MetricFree, "Addresses of a pool that a new client can get.", []string{"network", "pool"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *bookCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.leases
	ch <- c.size
	ch <- c.free
}

// Collect implements prometheus.Collector.
func (c *bookCollector) Collect(ch chan<- prometheus.Metric) {
	t := c.table()
	subnets := make([]netip.Prefix, len(t.scopes))
	for i, s := range t.scopes {
		subnets[i] = s.network.Subnet
	}
	live := c.book.CountLive(subnets...)
	for i, s := range t.scopes {
		ch <- prometheus.MustNewConstMetric(c.leases, prometheus.GaugeValue, float64(live[i]), s.network.Name)
	}
	for _, use := range c.pools(t) {
		ch <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, float64(use.Usable), use.Network, use.Name)
		ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(use.Free), use.Network, use.Name)
	}
}
