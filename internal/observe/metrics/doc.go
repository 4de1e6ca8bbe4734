// Package metrics counts events, and exports the version and the lab that are running.
//
// It owns bootlab_events_total, bootlab_build_info and bootlab_lab_*; each server registers its own metrics with the
// registry of the daemon. It never labels by a machine, a name or an address.
//
//	registry := prometheus.NewPedanticRegistry()
//	counts, err := metrics.NewRecorder(registry)
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{counts}})
//	m, err := metrics.NewLab(registry, version)
//	m.Started(l.Name, len(l.Hosts), gen, time.Now()) // then m.Applied after each reload
package metrics
