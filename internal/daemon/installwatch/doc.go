// Package installwatch reports to the install state machine what events show: that the system of a host is up, and that an install has timed out.
//
// It is a recorder of events with a bounded queue. Where the queue is full, the signal comes again, or a timeout ends the install instead.
//
//	w := installwatch.New()
//	bus := event.NewBus(event.BusConfig{Counters: []event.Recorder{w}})
//	err := w.Run(ctx, deps)
package installwatch
