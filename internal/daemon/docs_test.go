package daemon_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"bootlab/internal/metrics"
	"bootlab/internal/netlab"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// TestMetricsPage holds docs/metrics.md against what a whole daemon shows. Run with -update to rewrite it.
func TestMetricsPage(t *testing.T) {
	netlab.Need(t, "root", "ip")
	r := newRig(t, "10.76.0.1")
	lab := strings.Replace(r.read(), "networks:\n  n: {", "networks:\n  baremetal: {pools: {guests: {range: 10.76.0.100-10.76.0.110}}, ", 1)
	r.write(lab + "mirrors: {debian: \"http://127.0.0.1:9/debian\"}\nbalancers:\n  web: {listen: \"10.76.0.1:80\", backends: [\"a:80\"], check: {kind: none}}\n")
	r.registry = prometheus.NewRegistry()
	r.start()
	var got bytes.Buffer
	if err := metrics.Doc(&got, r.registry); err != nil {
		t.Fatal(err)
	}
	const page = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(page, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("docs/metrics.md is not what the daemon shows; make docs rewrites it (-want +got):\n%s", diff)
	}
}
