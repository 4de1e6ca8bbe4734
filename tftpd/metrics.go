package tftpd

import "github.com/prometheus/client_golang/prometheus"

// The names of the metrics.
const (
	MetricTransfers = "bootlab_tftpd_transfers_total"
	MetricActive    = "bootlab_tftpd_transfers_active"
	MetricDropped   = "bootlab_tftpd_requests_dropped_total"
	MetricBytes     = "bootlab_tftpd_sent_bytes_total"
	MetricResent    = "bootlab_tftpd_blocks_resent_total"
	MetricDuration  = "bootlab_tftpd_transfer_duration_seconds"
)

// How a request ends, as label "result".
const (
	resultServed  = "served"
	resultFailed  = "failed"
	resultRefused = "refused"
	resultProbe   = "probe"
)

// Why a request is not answered, as label "reason".
const (
	reasonBusy      = "busy"
	reasonMalformed = "malformed"
	reasonDuplicate = "duplicate"
	reasonStray     = "stray" // a reply for no transfer, at a port that all share
)

type metrics struct {
	results  map[string]prometheus.Counter
	dropped  map[string]prometheus.Counter
	active   prometheus.Gauge
	bytes    prometheus.Counter
	resent   prometheus.Counter
	duration prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricTransfers, Help: "Requests by how they ended."}, []string{"result"})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricDropped, Help: "Packets that were not taken up, by reason."}, []string{"reason"})
	m := &metrics{
		results: map[string]prometheus.Counter{},
		dropped: map[string]prometheus.Counter{},
		active:  prometheus.NewGauge(prometheus.GaugeOpts{Name: MetricActive, Help: "Transfers under way."}),
		bytes:   prometheus.NewCounter(prometheus.CounterOpts{Name: MetricBytes, Help: "Bytes of files that clients acknowledged."}),
		resent:  prometheus.NewCounter(prometheus.CounterOpts{Name: MetricResent, Help: "Blocks that were sent again."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: MetricDuration, Help: "Time of completed transfers.",
			Buckets: []float64{.01, .05, .25, 1, 5, 25, 100}}),
	}
	for _, l := range []string{resultServed, resultFailed, resultRefused, resultProbe} {
		m.results[l] = results.WithLabelValues(l)
	}
	for _, l := range []string{reasonBusy, reasonMalformed, reasonDuplicate, reasonStray} {
		m.dropped[l] = dropped.WithLabelValues(l)
	}
	r.MustRegister(results, dropped, m.active, m.bytes, m.resent, m.duration)
	return m
}
