package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/descriptors"
	"github.com/bootlab/bootlab/internal/observe/metrics"
)

// MetricServerUp is 1 for a server that serves all that it should.
const MetricServerUp = "bootlab_server_up"

// MetricServerDescriptors is how many file descriptors a server may use.
const MetricServerDescriptors = "bootlab_server_descriptors"

// NewCollector counts the servers that serve.
func NewCollector(states func() []api.Server, shares descriptors.Shares) *metrics.Gauges {
	label := []string{"server"}
	up := prometheus.NewDesc(MetricServerUp, "Whether the server serves all that it should: 1, else 0.", label, nil)
	files := prometheus.NewDesc(MetricServerDescriptors, "File descriptors that the server may use for connections, transfers and requests. process_max_fds is the limit of all.", label, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		for server, n := range map[string]int{
			TFTP: shares.TFTP(), DNS: shares.DNS(), HTTP: shares.HTTP(), Admin: shares.Admin, LB: shares.Balancers(),
		} {
			set(files, float64(n), server)
		}
		for _, s := range states() {
			serves := 0.0
			if s.Serving {
				serves = 1
			}
			set(up, serves, s.Name)
		}
	}, up, files)
}
