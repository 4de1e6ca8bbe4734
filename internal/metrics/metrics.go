// Package metrics counts events by kind and tells how reloads went.
//
// A boot fact is counted here, from the same event that is logged and put on the timeline; how often a server is asked it
// counts itself.
package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bootlab/internal/event"
)

// The names of the metrics.
const (
	Events               = "bootlab_events_total"
	BuildInfo            = "bootlab_build_info"
	LabGeneration        = "bootlab_lab_generation"
	LabHosts             = "bootlab_lab_hosts"
	ReloadSuccessful     = "bootlab_lab_reload_last_successful"
	ReloadSuccessSeconds = "bootlab_lab_reload_last_success_timestamp_seconds"
	Reloads              = "bootlab_lab_reloads_total"
)

// A Recorder counts events. It implements event.Recorder.
type Recorder struct {
	kinds []prometheus.Counter // by event.Kind
}

// NewRecorder registers a counter for every kind of event, so that each is there from the start. The error is a metric
// that is registered already.
func NewRecorder(reg prometheus.Registerer) (*Recorder, error) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Events, Help: "Events by kind; docs/events.md says what each means."}, []string{"kind"})
	r := &Recorder{kinds: []prometheus.Counter{events.WithLabelValues(event.Unknown.String())}}
	for _, k := range event.Kinds() {
		r.kinds = append(r.kinds, events.WithLabelValues(k.String()))
	}
	return r, reg.Register(events)
}

// Record implements event.Recorder.
func (r *Recorder) Record(e event.Event) {
	k := e.Kind
	if int(k) >= len(r.kinds) {
		k = event.Unknown
	}
	r.kinds[k].Inc()
}

// Lab tells which lab is in force and how the last reload went. Its methods are safe for concurrent use.
type Lab struct {
	generation, hosts, successful, success prometheus.Gauge
	applied, refused                       prometheus.Counter
}

// NewLab registers the metrics of the lab in force and of the build. The error is a metric that is registered already.
func NewLab(reg prometheus.Registerer, version, name string) (*Lab, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: BuildInfo, Help: "Always 1; the version, and the lab that was loaded at the start."}, []string{"version", "lab"})
	build.WithLabelValues(version, name).Set(1)
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Reloads, Help: "Labs that were to come into force, by result."}, []string{"result"})
	l := &Lab{
		generation: gauge(LabGeneration, "How many labs came into force since the start."),
		hosts:      gauge(LabHosts, "Hosts of the lab in force."),
		successful: gauge(ReloadSuccessful, "1 if the last lab came into force, 0 if it was refused."),
		success:    gauge(ReloadSuccessSeconds, "When a lab last came into force."),
		applied:    reloads.WithLabelValues("applied"),
		refused:    reloads.WithLabelValues("refused"),
	}
	var errs []error
	for _, c := range []prometheus.Collector{build, reloads, l.generation, l.hosts, l.successful, l.success} {
		errs = append(errs, reg.Register(c))
	}
	return l, errors.Join(errs...)
}

// Applied tells that a lab came into force.
func (l *Lab) Applied(gen uint64, hosts int, at time.Time) {
	l.generation.Set(float64(gen))
	l.hosts.Set(float64(hosts))
	l.success.Set(float64(at.UnixMilli()) / 1000)
	l.successful.Set(1)
	l.applied.Inc()
}

// Refused tells that a lab was refused.
func (l *Lab) Refused() {
	l.successful.Set(0)
	l.refused.Inc()
}
