// Package event records what happens in the servers.
//
// A server calls Record once; the log line, the metric and the timeline come from that call and the table of kinds, so they cannot
// disagree. Events report; they do not control: nothing correct may depend on an event arriving.
//
//	bus := event.NewBus(event.BusConfig{Now: time.Now, Identify: who, Recorders: []event.Recorder{logs, counts, timelines}})
//	bus.Record(event.Event{Kind: event.DHCPAck, MAC: mac, Addr: addr, Dur: took})
package event
