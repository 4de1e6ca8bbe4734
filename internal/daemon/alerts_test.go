package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/bootlab/bootlab/test/support/netns"
)

const alertRules = "../../configs/prometheus/alerts.yaml"

// TestNoAlertForNothing: what a daemon shows of a cluster that was never installed fires no alert, whatever its age: Prometheus' own
// evaluation of the rules says so.
func TestNoAlertForNothing(t *testing.T) {
	netns.Need(t, "root", "ip", "promtool")
	r := newRig(t, "10.125.1.1")
	r.write(r.read() + `
  boot: {mac: 52:54:00:00:12:01, ip: 10.125.1.21, cluster: ocp, role: bootstrap}
  cp: {mac: 52:54:00:00:12:02, ip: 10.125.1.22, cluster: ocp, role: master}
  work: {mac: 52:54:00:00:12:03, ip: 10.125.1.23, cluster: ocp, role: worker}
clusters: {ocp: {kind: openshift, address: 10.125.1.10}}
`)
	r.registry = prometheus.NewRegistry()
	r.start()
	r.until("the cluster's balancers were checked and its address is added", func() bool { s := r.status(); return len(s.Balancers) == 4 && len(s.Unreached()) == 0 })
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := "      - {series: 'up{job=\"bootlab\"}', values: '1x60'}\n"
	for _, f := range families {
		for _, m := range f.Metric {
			for _, s := range samples(f, m) {
				series += fmt.Sprintf("      - {series: '%s', values: '%v+0x60'}\n", s.name, s.value)
			}
		}
	}
	promtool(t, series, "", "[]")
}

// TestAlerts: each of these fires one alert.
func TestAlerts(t *testing.T) {
	t.Parallel()
	netns.Need(t, "promtool")
	for _, tt := range []struct{ alert, series, labels string }{
		{"BootlabBackendDown", `bootlab_balancer_backends{balancer="ocp-api",instance="lab",state="down"}`, `{severity: warning, balancer: ocp-api, instance: lab, state: down}`},
		{"BootlabMachineRefused", `bootlab_conditions{instance="lab",condition="machine",state="failed"}`, `{severity: critical, instance: lab}`},
		{"BootlabCertificateBad", `bootlab_conditions{instance="lab",condition="certificate",state="failed"}`, `{severity: critical, instance: lab, condition: certificate, state: failed}`},
		{"BootlabDNSUpstreamsSilent", `bootlab_conditions{instance="lab",condition="dns-upstream",state="failed"}`, `{severity: critical, instance: lab, condition: dns-upstream, state: failed}`},
		{"BootlabVIPNotHeld", `bootlab_vips{instance="lab",state="leased"}`, `{severity: critical, instance: lab}`},
		{"BootlabDiskFull", `bootlab_conditions{instance="lab",condition="disk",state="failed"}`, `{severity: critical, instance: lab, condition: disk, state: failed}`},
		{"BootlabHypervisorDown", `bootlab_conditions{instance="lab",condition="hypervisor",state="failed"}`, `{severity: warning, instance: lab, condition: hypervisor, state: failed}`},
		{"BootlabInterfaceDown", `bootlab_conditions{instance="lab",condition="interface",state="failed"}`, `{severity: critical, instance: lab, condition: interface, state: failed}`},
	} {
		t.Run(tt.alert, func(t *testing.T) {
			t.Parallel()
			promtool(t, fmt.Sprintf("      - {series: '%s', values: '0x30 1x60'}\n", tt.series), tt.alert, "[{exp_labels: "+tt.labels+"}]")
		})
	}
}

type sample struct {
	name  string // with labels
	value float64
}

// samples returns what Prometheus would store of a metric. Quantiles and buckets but the last are left out.
func samples(f *dto.MetricFamily, m *dto.Metric) []sample {
	var labels []string
	for _, l := range m.Label {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	labels = append(labels, `instance="lab"`)
	name := func(suffix string, more ...string) string {
		return f.GetName() + suffix + "{" + strings.Join(slices.Concat(labels, more), ",") + "}"
	}
	switch {
	case m.Gauge != nil:
		return []sample{{name(""), m.Gauge.GetValue()}}
	case m.Counter != nil:
		return []sample{{name(""), m.Counter.GetValue()}}
	case m.Histogram != nil:
		n := float64(m.Histogram.GetSampleCount())
		return []sample{{name("_count"), n}, {name("_sum"), m.Histogram.GetSampleSum()}, {name("_bucket", `le="+Inf"`), n}}
	}
	return nil
}

// promtool evaluates the rules with these series, a sample a minute. An empty alert means all of them.
func promtool(t *testing.T, series, alert, want string) {
	t.Helper()
	rules, err := filepath.Abs(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	test := fmt.Sprintf("rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n%s    alert_rule_test:\n", rules, series)
	if alert != "" && !strings.Contains(string(text), "- alert: "+alert+"\n") {
		t.Fatalf("no rule for %s", alert)
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		if ok && (alert == "" || name == alert) {
			test += fmt.Sprintf("      - {eval_time: 59m, alertname: %s, exp_alerts: %s}\n", name, want)
		}
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(test), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil && !(want != "[]" && onlyAnnotations(string(out))) {
		t.Errorf("%v\n%s", err, out)
	}
}

// onlyAnnotations reports whether the alert that was expected fired, with annotations that were not expected: they are for people.
func onlyAnnotations(out string) bool {
	return strings.Contains(out, "got:[") && !strings.Contains(out, "got:[]") && strings.Count(out, "alertname:") == 1
}
