// Package event is the one call by which the house tells what happened.
//
// A server calls Record once; the log line, the metric, the timeline and the documentation all come from it, so they
// cannot disagree. State flows by pointer, news by event: nothing correct may depend on an event arriving.
//
//	bus := event.NewBus(event.BusConfig{Now: time.Now, Identify: who, Recorders: []event.Recorder{logs, counts, timelines}})
//	bus.Record(event.Event{Kind: event.DHCPAck, MAC: mac, Addr: addr, Dur: took})
package event
