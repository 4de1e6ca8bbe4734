package dhcpd

import (
	"time"

	"bootlab/dhcpd/segment"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
)

const messageTypes = 9 // 0 stands for what RFC 2131 does not know

func typeName(t dhcpv4.MessageType) string {
	return [messageTypes]string{
		"other", "discover", "offer", "request", "decline", "ack", "nak", "release", "inform",
	}[typeIndex(t)]
}

func typeIndex(t dhcpv4.MessageType) int {
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
		m.received[i] = received.WithLabelValues(typeName(dhcpv4.MessageType(i)))
		m.sent[i] = sent.WithLabelValues(typeName(dhcpv4.MessageType(i)))
	}
	for i := dropNone + 1; i < dropReasons; i++ {
		m.dropped[i] = dropped.WithLabelValues(i.String())
	}
	reg.MustRegister(received, sent, dropped, m.commit, m.advertisements, m.rogue, m.truncated, &bookCollector{
		table: s.deps.Table, book: s.deps.Book, now: s.deps.Now,
		leases: prometheus.NewDesc(MetricLeases, "Live leases.", []string{"network"}, nil),
		free:   prometheus.NewDesc(MetricFree, "Addresses that a pool could still give.", []string{"network", "pool"}, nil),
	})
	return m
}

// A bookCollector counts leases when it is asked. Networks and pools are the lab's, so the labels are a closed set.
type bookCollector struct {
	table        func() *Table
	book         *Book
	now          func() time.Time
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
	live := make([]int, len(t.scopes))
	now := c.now()
	c.book.each(func(l *Lease) {
		if !l.Live(now) {
			return
		}
		for i, s := range t.scopes {
			if s.network.Subnet.Contains(l.Addr) {
				live[i]++
				return
			}
		}
	})
	for i, s := range t.scopes {
		ch <- prometheus.MustNewConstMetric(c.leases, prometheus.GaugeValue, float64(live[i]), s.network.Name)
		for _, p := range s.pools {
			n := float64(c.book.free(t, p))
			ch <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, n, s.network.Name, p.pool.Name)
		}
	}
}
