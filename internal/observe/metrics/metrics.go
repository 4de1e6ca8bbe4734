package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// The names of the metrics.
const (
	Events        = "bootlab_events_total"
	BuildInfo     = "bootlab_build_info"
	LabSuccess    = "bootlab_lab_last_reload_successful"
	LabApplyTime  = "bootlab_lab_last_applied_timestamp_seconds"
	LabGeneration = "bootlab_lab_generation"
	LabHosts      = "bootlab_lab_hosts"
	LabReloads    = "bootlab_lab_reloads_total"
)

// A Recorder counts events by kind. It is safe for concurrent use.
type Recorder struct {
	kinds []prometheus.Counter // by event.Kind; the first counts unknown kinds
}

// NewRecorder returns a recorder whose counters are registered. A nil registerer is a bug and panics; the error is the
// registerer's.
func NewRecorder(registerer prometheus.Registerer) (*Recorder, error) {
	if registerer == nil {
		panic("metrics: registerer is nil")
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Events, Help: "Events, by kind."}, []string{"kind"})
	r := &Recorder{kinds: []prometheus.Counter{events.WithLabelValues(event.Unknown.String())}}
	for _, k := range event.Kinds() {
		r.kinds = append(r.kinds, events.WithLabelValues(k.String()))
	}
	return r, registerer.Register(events)
}

// Record implements event.Recorder.
func (r *Recorder) Record(e event.Event) {
	k := int(e.Kind)
	if k >= len(r.kinds) {
		k = int(event.Unknown)
	}
	r.kinds[k].Inc()
}

// A Lab exports the applied lab, and attempts to replace it. It is safe for concurrent use.
type Lab struct {
	build   *prometheus.GaugeVec
	success prometheus.Gauge
	applied prometheus.Gauge
	gen     prometheus.Gauge
	hosts   prometheus.Gauge
	reloads *prometheus.CounterVec
}

// Labels of LabReloads.
const (
	resultApplied = "applied"
	resultRefused = "refused"
)

// NewLab registers the metrics of the lab, and bootlab_build_info. A nil registerer is a bug and panics; the error is the registerer's.
func NewLab(registerer prometheus.Registerer, version string) (*Lab, error) {
	if registerer == nil {
		panic("metrics: registerer is nil")
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	l := &Lab{
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: BuildInfo, Help: "Always 1; the labels name what is running.",
			ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}}, []string{"lab"}),
		success: gauge(LabSuccess, "1 if the last reload of the lab file succeeded, 0 if it was refused and the running lab stays in force."),
		applied: gauge(LabApplyTime, "Time at which the current lab was applied, in seconds since 1970."),
		gen:     gauge(LabGeneration, "Generation of the current lab; it counts from 1 at each start."),
		hosts:   gauge(LabHosts, "Hosts in the current lab."),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: LabReloads, Help: "Reloads of the lab file, by result."}, []string{"result"}),
	}
	for _, result := range []string{resultApplied, resultRefused} {
		l.reloads.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{l.build, l.success, l.applied, l.gen, l.hosts, l.reloads} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Applied records that a reload applied a lab.
func (l *Lab) Applied(name string, hosts int, gen uint64, at time.Time) {
	l.reloads.WithLabelValues(resultApplied).Inc()
	l.Started(name, hosts, gen, at)
}

// Started records the lab of the start, which is no reload.
func (l *Lab) Started(name string, hosts int, gen uint64, at time.Time) {
	l.build.Reset()
	l.build.WithLabelValues(name).Set(1)
	l.success.Set(1)
	l.applied.Set(float64(at.UnixNano()) / 1e9)
	l.gen.Set(float64(gen))
	l.hosts.Set(float64(hosts))
}

// Refused records that a lab was refused.
func (l *Lab) Refused() {
	l.reloads.WithLabelValues(resultRefused).Inc()
	l.success.Set(0)
}

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
