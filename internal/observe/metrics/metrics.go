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
	kinds []prometheus.Counter // by event.Kind; the first counts what is unknown
}

// NewRecorder returns a recorder whose counters are registered. A nil registerer is a bug and panics; the error is the
// registerer's.
func NewRecorder(registerer prometheus.Registerer) (*Recorder, error) {
	if registerer == nil {
		panic("metrics: registerer is nil")
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Events, Help: "What happened, by kind of event."}, []string{"kind"})
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

// A Lab tells which lab is in force, and of attempts to replace it. It is safe for concurrent use.
type Lab struct {
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

// NewLab registers what tells of the lab, and what is running: bootlab's version and the name of the lab. A nil registerer
// is a bug and panics; the error is the registerer's.
func NewLab(registerer prometheus.Registerer, version, lab string) (*Lab, error) {
	if registerer == nil {
		panic("metrics: registerer is nil")
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	l := &Lab{
		success: gauge(LabSuccess, "1 if the last attempt to bring a lab into force succeeded, 0 if the one before it is still in force."),
		applied: gauge(LabApplyTime, "When the lab in force came into force."),
		gen:     gauge(LabGeneration, "The generation of the lab in force; it counts from 1 at each start."),
		hosts:   gauge(LabHosts, "Hosts of the lab in force."),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: LabReloads, Help: "Attempts to bring a lab into force, by result."}, []string{"result"}),
	}
	for _, result := range []string{resultApplied, resultRefused} {
		l.reloads.WithLabelValues(result)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: BuildInfo, Help: "Always 1; what is running is in the labels.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version(), "lab": lab}})
	build.Set(1)
	for _, c := range []prometheus.Collector{build, l.success, l.applied, l.gen, l.hosts, l.reloads} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Applied tells that a lab of so many hosts came into force.
func (l *Lab) Applied(gen uint64, hosts int, at time.Time) {
	l.reloads.WithLabelValues(resultApplied).Inc()
	l.success.Set(1)
	l.applied.Set(float64(at.UnixNano()) / 1e9)
	l.gen.Set(float64(gen))
	l.hosts.Set(float64(hosts))
}

// Refused tells that a lab was refused, so that the one before it stays in force.
func (l *Lab) Refused() {
	l.reloads.WithLabelValues(resultRefused).Inc()
	l.success.Set(0)
}
