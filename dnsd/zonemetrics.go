package dnsd

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of labels that the lab file decides about: what is beyond counts as "other".
const (
	maxZoneLabels   = 64
	maxServerLabels = 32

	otherLabel = "other"
)

// zoneCounts count the replies from each zone.
type zoneCounts struct {
	desc   *prometheus.Desc
	latest atomic.Pointer[tableCounts]

	mu  sync.Mutex
	all map[string]*codeCounts // by label
}

type codeCounts [numCodes]atomic.Uint64

// tableCounts are the counts of the zones of the tables of one lab, by index.
type tableCounts struct {
	of    *origins // of the tables of one lab
	zones []*codeCounts
}

// count counts a reply from a zone of a table.
func (z *zoneCounts) count(t *Table, zone int, code rcode) {
	of := z.latest.Load()
	if of == nil || of.of != t.origins {
		of = z.countsOf(t)
	}
	of.zones[zone][codeClass(code)].Add(1)
}

// countsOf returns the counts of a table that is new. Zones that were counted before go on.
func (z *zoneCounts) countsOf(t *Table) *tableCounts {
	z.mu.Lock()
	defer z.mu.Unlock()
	if of := z.latest.Load(); of != nil && of.of == t.origins {
		return of
	}
	of := &tableCounts{of: t.origins, zones: make([]*codeCounts, len(t.zones))}
	order := make([]int, len(t.zones))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		return compareNames(t.zones[x].origin, t.zones[y].origin)
	})
	for _, i := range order {
		label := t.zones[i].text
		if z.all[label] == nil && len(z.all) >= maxZoneLabels {
			label = otherLabel
		}
		if z.all[label] == nil {
			z.all[label] = &codeCounts{}
		}
		of.zones[i] = z.all[label]
	}
	z.latest.Store(of)
	return of
}

// Describe implements prometheus.Collector.
func (z *zoneCounts) Describe(ch chan<- *prometheus.Desc) { ch <- z.desc }

// Collect implements prometheus.Collector.
func (z *zoneCounts) Collect(ch chan<- prometheus.Metric) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for label, counts := range z.all {
		for c := range counts {
			if n := counts[c].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(z.desc, prometheus.CounterValue, float64(n), label, codeNames[c])
			}
		}
	}
}

// upstreamMetrics measure the servers that are asked.
type upstreamMetrics struct {
	took     *prometheus.HistogramVec
	failures *prometheus.CounterVec

	mu     sync.Mutex
	labels map[upstream]string
}

// label returns the label of a server of a rule. The servers of delegations are named by others.
func (m *upstreamMetrics) label(q *upstreamQuery, server upstream) string {
	if q.cut != nil {
		return "delegated"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	label, ok := m.labels[server]
	if !ok && len(m.labels) < maxServerLabels {
		label, ok = server.String(), true
		m.labels[server] = label
	}
	if !ok {
		return otherLabel
	}
	return label
}

func newUpstreamMetrics() upstreamMetrics {
	return upstreamMetrics{
		labels: map[upstream]string{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricUpstream, Help: "Duration of answers of other servers, by server.",
			Buckets: []float64{.001, .005, .02, .1, .5, 1, 5}}, []string{"upstream"}),
		failures: vec(metricFailures, "Failed queries to other servers, by server.", "upstream"),
	}
}

func newZoneCounts() zoneCounts {
	return zoneCounts{
		all: map[string]*codeCounts{},
		desc: prometheus.NewDesc(metricZone, "Queries that a zone of the lab answered, by zone and response code.",
			[]string{"zone", "rcode"}, nil),
	}
}
