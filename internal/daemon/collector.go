package daemon

import "github.com/prometheus/client_golang/prometheus"

// A collector measures gauges at each scrape.
type collector struct {
	descs   []*prometheus.Desc
	measure func(gauge)
}

// A gauge takes the value of one of the collector's metrics, with the values of its labels.
type gauge func(d *prometheus.Desc, value float64, labels ...string)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.measure(func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	})
}
