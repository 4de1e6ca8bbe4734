package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"bootlab/internal/event"
	"bootlab/internal/metrics"
)

func TestRecorder(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r, err := metrics.NewRecorder(reg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.Record(event.Event{Kind: event.DHCPAck})
	}
	r.Record(event.Event{Kind: 250}) // from a newer version
	n, err := testutil.GatherAndCount(reg, metrics.Events)
	if err != nil || n != len(event.Kinds())+1 {
		t.Errorf("%d series, %v; want one for every kind and one for unknown ones: %d", n, err, len(event.Kinds())+1)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	for kind, want := range map[string]float64{"dhcp_ack": 3, "unknown": 1, "dhcp_nak": 0} {
		if got[kind] != want {
			t.Errorf("%s counted %v times, want %v", kind, got[kind], want)
		}
	}
	if _, err := metrics.NewRecorder(reg); err == nil {
		t.Error("registered twice without an error")
	}
}

func TestLab(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	l, err := metrics.NewLab(reg, "v1", "telco")
	if err != nil {
		t.Fatal(err)
	}
	l.Applied(2, 8, time.Unix(1700000000, 0))
	l.Refused()
	want := `
# HELP bootlab_lab_generation How many labs came into force since the start.
# TYPE bootlab_lab_generation gauge
bootlab_lab_generation 2
# HELP bootlab_lab_hosts Hosts of the lab in force.
# TYPE bootlab_lab_hosts gauge
bootlab_lab_hosts 8
# HELP bootlab_lab_reload_last_successful 1 if the last lab came into force, 0 if it was refused.
# TYPE bootlab_lab_reload_last_successful gauge
bootlab_lab_reload_last_successful 0
# HELP bootlab_lab_reloads_total Labs that were to come into force, by result.
# TYPE bootlab_lab_reloads_total counter
bootlab_lab_reloads_total{result="applied"} 1
bootlab_lab_reloads_total{result="refused"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), metrics.LabGeneration, metrics.LabHosts, metrics.ReloadSuccessful, metrics.Reloads); err != nil {
		t.Error(err)
	}
}
