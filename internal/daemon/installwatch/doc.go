// Package installwatch tells the install state machine what events show: that the system of a host is up, and that an install has timed out.
//
// It is a recorder of events, whose queue is bounded: what is lost is only a signal that comes again, or a timeout that ends the install
// instead.
//
//	w := installwatch.New()
//	bus := event.NewBus(event.BusConfig{Counters: []event.Recorder{w}})
//	err := w.Run(ctx, deps)
package installwatch
