package metrics_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/metrics"
)

func newRecorder(t testing.TB, r prometheus.Registerer) *metrics.Recorder {
	t.Helper()
	m, err := metrics.NewRecorder(r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRegisteredTwice(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	newRecorder(t, registry)
	if _, err := metrics.NewRecorder(registry); err == nil {
		t.Error("a second recorder at the same registry is no error")
	}
}

func TestEveryKindIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newRecorder(t, registry)
	for _, k := range event.Kinds() {
		for range int(k) {
			m.Record(event.Event{Kind: k})
		}
	}
	m.Record(event.Event{})
	m.Record(event.Event{Kind: 250})
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, c := range f.GetMetric() {
			if f.GetName() == metrics.Events {
				got[c.GetLabel()[0].GetValue()] = c.GetCounter().GetValue()
			}
		}
	}
	for _, k := range event.Kinds() {
		if got[k.String()] != float64(k) {
			t.Errorf("%s was counted %v times, want %d", k, got[k.String()], k)
		}
	}
	if got["unknown"] != 2 {
		t.Errorf("unknown kinds were counted %v times, want 2", got["unknown"])
	}
}

func TestLab(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	l, err := metrics.NewLab(registry, "v1")
	if err != nil {
		t.Fatal(err)
	}
	l.Started("before", 9, 1, time.Unix(50, 0))
	l.Applied("telco", 7, 2, time.Unix(100, 5e8))
	l.Refused()
	want := `
# HELP bootlab_build_info Always 1; the labels name what is running.
# TYPE bootlab_build_info gauge
bootlab_build_info{goversion="` + runtime.Version() + `",lab="telco",version="v1"} 1
# HELP bootlab_lab_generation Generation of the current lab; it counts from 1 at each start.
# TYPE bootlab_lab_generation gauge
bootlab_lab_generation 2
# HELP bootlab_lab_hosts Hosts in the current lab.
# TYPE bootlab_lab_hosts gauge
bootlab_lab_hosts 7
# HELP bootlab_lab_last_applied_timestamp_seconds Time at which the current lab was applied, in seconds since 1970.
# TYPE bootlab_lab_last_applied_timestamp_seconds gauge
bootlab_lab_last_applied_timestamp_seconds 100.5
# HELP bootlab_lab_last_reload_successful 1 if the last reload of the lab file succeeded, 0 if it was refused and the running lab stays in force.
# TYPE bootlab_lab_last_reload_successful gauge
bootlab_lab_last_reload_successful 0
# HELP bootlab_lab_reloads_total Reloads of the lab file, by result.
# TYPE bootlab_lab_reloads_total counter
bootlab_lab_reloads_total{result="applied"} 1
bootlab_lab_reloads_total{result="refused"} 1
`
	names := []string{metrics.BuildInfo, metrics.LabSuccess, metrics.LabApplyTime, metrics.LabGeneration, metrics.LabHosts, metrics.LabReloads}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func BenchmarkRecord(b *testing.B) {
	m := newRecorder(b, prometheus.NewRegistry())
	b.ReportAllocs()
	for b.Loop() {
		m.Record(event.Event{Kind: event.DHCPAck})
	}
}
