package dhcpd

import (
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"

	"github.com/prometheus/client_golang/prometheus"
)

const messageTypes = 9 // 0 stands for what RFC 2131 does not know

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

// metrics are counters resolved once, so that a packet costs no look-up.
type metrics struct {
	received, sent [messageTypes]prometheus.Counter
	dropped        [dropReasons]prometheus.Counter
	commit         prometheus.Histogram
	advertisements prometheus.Counter
	rogue          prometheus.Counter
	truncated      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	received := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricReceived, Help: "DHCP packets received, by message type.",
	}, []string{"type"})
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricSent, Help: "DHCP packets sent, by message type.",
	}, []string{"type"})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricDropped, Help: "DHCP packets that got no answer, by reason.",
	}, []string{"reason"})
	m := &metrics{
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: MetricCommit, Help: "Time to make a batch of leases durable.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
		}),
		advertisements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricRA, Help: "Router solicitations answered with \"no router here\".",
		}),
	}
	m.rogue = prometheus.NewCounter(prometheus.CounterOpts{
		Name: MetricRogue, Help: "Answers of other DHCP servers seen where this one gives the addresses.",
	})
	m.truncated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: MetricTrunc, Help: "Options left out because the client takes no longer message.",
	})
	for result, value := range map[string]func(segment.ProberStats) uint64{
		"in_use":   func(p segment.ProberStats) uint64 { return p.Found },
		"free":     func(p segment.ProberStats) uint64 { return p.Silent },
		"unprobed": func(p segment.ProberStats) uint64 { return p.Unprobed + s.probes.skipped.Load() },
	} {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: MetricProbes, Help: "Addresses asked for on the wire before a pool gives them, by result.",
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
	reg.MustRegister(received, sent, dropped, m.commit, m.advertisements, m.rogue, m.truncated, &bookCollector{
		table: s.deps.Table, book: s.deps.Book,
		leases: prometheus.NewDesc(MetricLeases, "Live leases.", []string{"network"}, nil),
		free:   prometheus.NewDesc(MetricFree, "Addresses that a pool could still give.", []string{"network", "pool"}, nil),
	})
	return m
}

// A bookCollector counts leases when it is asked. Networks and pools are the lab's, so the labels are a closed set.
type bookCollector struct {
	table        func() *Table
	book         *leases.Book
	leases, free *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *bookCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.leases
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
		for _, p := range s.pools {
			_, _, free := c.book.Usage(p.range_)
			ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(free), s.network.Name, p.pool.Name)
		}
	}
}
