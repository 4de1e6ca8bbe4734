package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bootlab/internal/event"
)

// The names of the metrics.
const (
	Events        = "bootlab_events_total"
	BuildInfo     = "bootlab_build_info"
	LabSuccess    = "bootlab_lab_last_reload_successful"
	LabReloadTime = "bootlab_lab_last_reload_timestamp_seconds"
	LabApplyTime  = "bootlab_lab_last_applied_timestamp_seconds"
	LabDuration   = "bootlab_lab_reload_duration_seconds"
	LabGeneration = "bootlab_lab_generation"
	LabHosts      = "bootlab_lab_hosts"
	LabReloads    = "bootlab_lab_reloads_total"
)

// A Recorder counts events by kind. It is safe for concurrent use.
type Recorder struct {
	kinds []prometheus.Counter // by event.Kind; the first counts what is unknown

	build    *prometheus.GaugeVec
	success  prometheus.Gauge
	reload   prometheus.Gauge
	applied  prometheus.Gauge
	duration prometheus.Gauge
	gen      prometheus.Gauge
	hosts    prometheus.Gauge
	reloads  map[string]prometheus.Counter
}

// Labels of LabReloads.
const (
	resultApplied = "applied"
	resultRefused = "refused"
)

// New registers the metrics. A nil registerer, or one that has them already, is a bug and panics.
func New(registerer prometheus.Registerer) *Recorder {
	if registerer == nil {
		panic("metrics: registerer is nil")
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		registerer.MustRegister(g)
		return g
	}
	r := &Recorder{
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: BuildInfo, Help: "Always 1; what is running is in the labels."},
			[]string{"version", "revision", "goversion", "lab"}),
		success:  gauge(LabSuccess, "1 if the last attempt to bring a lab into force succeeded, 0 if the one before it is still in force."),
		reload:   gauge(LabReloadTime, "When the last attempt to bring a lab into force was made."),
		applied:  gauge(LabApplyTime, "When the lab in force came into force."),
		duration: gauge(LabDuration, "How long the last attempt to bring a lab into force took."),
		gen:      gauge(LabGeneration, "The generation of the lab in force; it counts from 1 at each start."),
		hosts:    gauge(LabHosts, "Hosts of the lab in force."),
		reloads:  map[string]prometheus.Counter{},
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Events, Help: "What happened, by kind of event."}, []string{"kind"})
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: LabReloads, Help: "Attempts to bring a lab into force, by result."}, []string{"result"})
	registerer.MustRegister(r.build, events, reloads)
	r.kinds = append(r.kinds, events.WithLabelValues(event.Unknown.String()))
	for _, k := range event.Kinds() {
		r.kinds = append(r.kinds, events.WithLabelValues(k.String()))
	}
	for _, result := range []string{resultApplied, resultRefused} {
		r.reloads[result] = reloads.WithLabelValues(result)
	}
	return r
}

// Record implements event.Recorder.
func (r *Recorder) Record(e event.Event) {
	k := int(e.Kind)
	if k >= len(r.kinds) {
		k = int(event.Unknown)
	}
	r.kinds[k].Inc()
}

// A Build is what is running.
type Build struct {
	Version  string
	Revision string
	Go       string // version of Go
	Lab      string // name of the lab
}

// Build tells what is running. A later call, as after the lab was renamed, replaces what an earlier one told.
func (r *Recorder) Build(b Build) {
	r.build.Reset()
	r.build.WithLabelValues(b.Version, b.Revision, b.Go, b.Lab).Set(1)
}

// A Lab is an attempt to bring a lab into force.
type Lab struct {
	At         time.Time
	Took       time.Duration
	Generation uint64 // in force afterwards
	Hosts      int    // of the lab in force afterwards
}

// Applied tells that a lab came into force.
func (r *Recorder) Applied(l Lab) {
	r.attempt(l, resultApplied)
	r.success.Set(1)
	r.applied.Set(seconds(l.At))
	r.gen.Set(float64(l.Generation))
	r.hosts.Set(float64(l.Hosts))
}

// Refused tells that a lab was refused, so that the one before it stays in force. Of l only At and Took count.
func (r *Recorder) Refused(l Lab) {
	r.attempt(l, resultRefused)
	r.success.Set(0)
}

func (r *Recorder) attempt(l Lab, result string) {
	r.reload.Set(seconds(l.At))
	r.duration.Set(l.Took.Seconds())
	r.reloads[result].Inc()
}

// seconds since 1970, as Prometheus counts time.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
