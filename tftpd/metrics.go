package tftpd

import "github.com/prometheus/client_golang/prometheus"

// The names of the metrics.
const (
	MetricTransfers = "bootlab_tftpd_transfers_total"
	MetricActive    = "bootlab_tftpd_transfers_active"
	MetricDropped   = "bootlab_tftpd_packets_dropped_total"
	MetricBytes     = "bootlab_tftpd_sent_bytes_total"
	MetricResent    = "bootlab_tftpd_blocks_retransmitted_total"
	MetricDuration  = "bootlab_tftpd_transfer_duration_seconds"
)

// How a request ends, as label "result".
const (
	resultServed  = "served"
	resultFailed  = "failed"
	resultRefused = "refused"
	resultProbe   = "probe"
)

// Why a packet is dropped, as label "reason".
const (
	reasonBusy       = "busy"
	reasonMalformed  = "malformed"
	reasonDuplicate  = "duplicate"
	reasonForged     = "forged" // another machine sent it than the one whose transfer it would replace
	reasonUnknownTID = "unknown_tid"
)

type metrics struct {
	results  map[string]prometheus.Counter
	dropped  map[string]prometheus.Counter
	active   prometheus.Gauge
	bytes    prometheus.Counter
	resent   prometheus.Counter
	duration prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricTransfers, Help: "Requests that were answered, by result."}, []string{"result"})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: MetricDropped,
		Help: "Packets dropped on the well-known port, by reason: the limit of transfers, no valid TFTP, a request while a transfer of its address and port " +
			"makes progress, one that another machine sent, a reply to no transfer."},
		[]string{"reason"})
	m := &metrics{
		results: map[string]prometheus.Counter{},
		dropped: map[string]prometheus.Counter{},
		active:  prometheus.NewGauge(prometheus.GaugeOpts{Name: MetricActive, Help: "Transfers in progress."}),
		bytes:   prometheus.NewCounter(prometheus.CounterOpts{Name: MetricBytes, Help: "Bytes of files that clients acknowledged."}),
		resent:  prometheus.NewCounter(prometheus.CounterOpts{Name: MetricResent, Help: "Blocks that were sent again."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: MetricDuration, Help: "Duration of completed transfers.",
			Buckets: []float64{.01, .05, .25, 1, 5, 25, 100}}),
	}
	for _, l := range []string{resultServed, resultFailed, resultRefused, resultProbe} {
		m.results[l] = results.WithLabelValues(l)
	}
	for _, l := range []string{reasonBusy, reasonMalformed, reasonDuplicate, reasonForged, reasonUnknownTID} {
		m.dropped[l] = dropped.WithLabelValues(l)
	}
	for _, c := range []prometheus.Collector{results, dropped, m.active, m.bytes, m.resent, m.duration} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
