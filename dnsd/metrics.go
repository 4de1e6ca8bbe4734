package dnsd

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics' names.
const (
	metricQueries      = "bootlab_dnsd_queries_total"
	metricDropped      = "bootlab_dnsd_queries_dropped_total"
	metricForward      = "bootlab_dnsd_forward_duration_seconds"
	metricFailures     = "bootlab_dnsd_upstream_failures_total"
	metricPrefetched   = "bootlab_dnsd_prefetched_answers_total"
	metricRateLimited  = "bootlab_dnsd_replies_limited_total"
	metricZone         = "bootlab_dnsd_zone_queries_total"
	metricUpstream     = "bootlab_dnsd_upstream_duration_seconds"
	metricStale        = "bootlab_dnsd_stale_answers_total"
	metricCache        = "bootlab_dnsd_cache_lookups_total"
	metricCacheEntries = "bootlab_dnsd_cache_entries"
	metricCacheBytes   = "bootlab_dnsd_cache_bytes"
	metricLimited      = "bootlab_dnsd_forward_limited_total"
	metricTransfers    = "bootlab_dnsd_transfers_total"
	metricNotifies     = "bootlab_dnsd_notifies_total"
	metricTCP          = "bootlab_dnsd_tcp_connections"
	metricEvicted      = "bootlab_dnsd_tcp_connections_evicted_total"
	metricUpdates      = "bootlab_dnsd_updates_total"
	metricUnauthentic  = "bootlab_dnsd_tsig_refused_total"
)

// A dropReason is why a message got no reply.
type dropReason uint8

const (
	dropMalformed dropReason = iota // not a query, or from an address that is no machine's
	dropBusy                        // the limit of queries that wait for the forwarder
	dropPanic                       // our bug
	dropReasons
)

// numTypes and numCodes are the sizes of the closed sets of labels.
const (
	numTypes = 12
	numCodes = 10
)

// metrics count what the server does. Queries are counted in a flat array, as a counter each would be mostly unused.
type metrics struct {
	queries               [zoneKinds][numTypes][numCodes]atomic.Uint64
	desc                  *prometheus.Desc
	dropped               [dropReasons]prometheus.Counter
	forward               prometheus.Histogram
	zones                 zoneCounts
	upstreams             upstreamMetrics
	limited               prometheus.Counter
	stale                 prometheus.Counter
	prefetched            prometheus.Counter
	rateLimited           [2]prometheus.Counter // by replyAction: truncated, dropped
	hits                  prometheus.Counter
	misses                prometheus.Counter
	entries               prometheus.Gauge
	bytes                 prometheus.Gauge
	sent                  prometheus.Counter
	refused               prometheus.Counter
	incremental           prometheus.Counter
	notified, notNotified prometheus.Counter
	tcp                   prometheus.Gauge
	evicted               prometheus.Counter
	unauthentic           prometheus.Counter
	updated               prometheus.Counter
	updateRefused         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{zones: newZoneCounts(), upstreams: newUpstreamMetrics(), desc: prometheus.NewDesc(metricQueries, "Queries that were answered, by source of the answer, type and response code.",
		[]string{"source", "type", "rcode"}, nil)}
	drops := vec(metricDropped, "Queries that got no reply, by reason.", "reason")
	for i, reason := range [dropReasons]string{"malformed", "busy", "panic"} {
		m.dropped[i] = drops.WithLabelValues(reason)
	}
	cache := vec(metricCache, "Lookups in the cache of the forwarder, by result.", "result")
	m.hits, m.misses = cache.WithLabelValues("hit"), cache.WithLabelValues("miss")
	transfers := vec(metricTransfers, "Zone transfers that were requested, by result.", "result")
	m.sent, m.incremental, m.refused = transfers.WithLabelValues("sent"), transfers.WithLabelValues("incremental"), transfers.WithLabelValues("refused")
	notifies := vec(metricNotifies, "Secondaries that were notified of a changed zone (NOTIFY), by result.", "result")
	m.notified, m.notNotified = notifies.WithLabelValues("replied"), notifies.WithLabelValues("silent")
	m.stale = prometheus.NewCounter(prometheus.CounterOpts{Name: metricStale, Help: "Expired answers that were given again because no server answered (RFC 8767)."})
	limits := vec(metricRateLimited, "Replies beyond dns.rate_limit to clients outside of the lab, by what became of them.", "result")
	m.rateLimited[truncateReply-1], m.rateLimited[dropReply-1] = limits.WithLabelValues("truncated"), limits.WithLabelValues("dropped")
	m.prefetched = prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefetched, Help: "Cached answers that were prefetched: asked for again before they expired."})
	m.forward = prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricForward,
		Help: "Duration of forwarded queries that the cache could not answer.", Buckets: []float64{.001, .005, .02, .1, .5, 1, 5}})
	m.limited = prometheus.NewCounter(prometheus.CounterOpts{Name: metricLimited,
		Help: "Queries answered with SERVFAIL because too many of the same client wait for the forwarder."})
	m.entries = prometheus.NewGauge(prometheus.GaugeOpts{Name: metricCacheEntries, Help: "Answers in the cache of the forwarder."})
	m.bytes = prometheus.NewGauge(prometheus.GaugeOpts{Name: metricCacheBytes, Help: "Size of the cache of the forwarder."})
	m.tcp = prometheus.NewGauge(prometheus.GaugeOpts{Name: metricTCP, Help: "Open TCP connections."})
	m.evicted = prometheus.NewCounter(prometheus.CounterOpts{Name: metricEvicted, Help: "TCP connections closed because a new one took their place."})
	updates := vec(metricUpdates, "Dynamic updates (RFC 2136), by result.", "result")
	m.updated, m.updateRefused = updates.WithLabelValues("done"), updates.WithLabelValues("refused")
	m.unauthentic = prometheus.NewCounter(prometheus.CounterOpts{Name: metricUnauthentic, Help: "Requests whose TSIG record was not valid: unknown key, wrong MAC, or clocks that differ."})
	for _, c := range []prometheus.Collector{m, drops, cache, transfers, notifies, m.forward, &m.zones, m.upstreams.took, m.upstreams.failures,
		m.limited, m.stale, m.prefetched, limits, m.entries, m.bytes, m.tcp, m.evicted, m.unauthentic, updates} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func vec(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

// count counts one reply.
func (m *metrics) count(kind zoneKind, qtype uint16, code rcode) {
	m.queries[kind][typeClass(qtype)][codeClass(code)].Add(1)
}

// kindNames are the values of the label source.
var kindNames = [zoneKinds]string{"none", "static", "derived", "lease", "forward", "local"}

// codeNames are the values of the label rcode.
var codeNames = [numCodes]string{"noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "notauth", "badvers", "yxdomain", "badcookie"}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

// Collect implements prometheus.Collector. Only what has been counted is shown.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	types := [numTypes]string{"other", "A", "NS", "CNAME", "SOA", "PTR", "MX", "TXT", "AAAA", "SRV", "HTTPS", "ANY"}
	for k := range m.queries {
		for t := range m.queries[k] {
			for c := range m.queries[k][t] {
				if n := m.queries[k][t][c].Load(); n > 0 {
					ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(n), kindNames[k], types[t], codeNames[c])
				}
			}
		}
	}
}

func typeClass(qtype uint16) int {
	switch qtype {
	case typeA:
		return 1
	case typeNS:
		return 2
	case typeCNAME:
		return 3
	case typeSOA:
		return 4
	case typePTR:
		return 5
	case typeMX:
		return 6
	case typeTXT:
		return 7
	case typeAAAA:
		return 8
	case typeSRV:
		return 9
	case typeHTTPS:
		return 10
	case typeANY:
		return 11
	}
	return 0
}

func codeClass(code rcode) int {
	switch code {
	case noError, formErr, servFail, nxDomain, notImp, refused:
		return int(code)
	case notAuth:
		return 6
	case badVers:
		return 7
	case yxDomain:
		return 8
	case badCookie:
		return 9
	}
	return int(servFail) // another one of an upstream
}
