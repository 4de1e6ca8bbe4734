// Package metrics counts events, and tells what version and which lab are running.
//
// It owns bootlab_events_total, bootlab_build_info and bootlab_lab_*; each server registers its own metrics at the
// registry that the daemon hands to all. It never labels by a machine, a name or an address.
//
//	registry := prometheus.NewPedanticRegistry()
//	m := metrics.New(registry)
//	m.Build(metrics.Build{Version: version, Revision: revision, Go: runtime.Version(), Lab: l.Name})
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{m}})
//	m.Applied(metrics.Lab{At: time.Now(), Generation: 3, Hosts: len(l.Hosts), Took: took})
//	err := metrics.Doc(os.Stdout, registry) // docs/metrics.md
package metrics
