package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gauges are measured at each scrape.
type Gauges struct {
	descs   []*prometheus.Desc
	measure func(Gauge)
}

// NewGauges returns gauges that measure sets, those of descs only. Scrapes may call it at the same time.
func NewGauges(measure func(Gauge), descs ...*prometheus.Desc) *Gauges {
	return &Gauges{descs: descs, measure: measure}
}

// A Gauge takes the value of one metric, with the values of its labels.
type Gauge func(d *prometheus.Desc, value float64, labels ...string)

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(ch chan<- prometheus.Metric) {
	g.measure(func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	})
}
