package daemon_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/test/support/golden"
	"github.com/bootlab/bootlab/test/support/netns"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// shows reports whether a metric has a value already.
func shows(t *testing.T, g prometheus.Gatherer, name string) bool {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
}

// TestMetricsPage holds docs/metrics.md against what a whole daemon shows. Run with -update to rewrite it.
func TestMetricsPage(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.76.0.1")
	lab := strings.Replace(r.read(), "networks:\n  n: {", "networks:\n  baremetal: {pools: {guests: {range: 10.76.0.100-10.76.0.110}}, ", 1)
	r.write(lab + "mirrors: {debian: \"http://127.0.0.1:9/debian\"}\nbalancers:\n  web: {listen: \"10.76.0.1:80\", backends: [\"a:80\"], check: {kind: none}}\n")
	r.registry = prometheus.NewRegistry()
	r.start()
	r.until("all servers and loops have begun", func() bool { return strings.Contains(r.log.String(), "daemon_ready") })
	r.until("the mirror's folder was looked through", func() bool { return shows(t, r.registry, mirror.MetricBytes) })
	golden.Check(t, update, "../../docs/metrics.md", metricsPage(t, r.registry))
}
