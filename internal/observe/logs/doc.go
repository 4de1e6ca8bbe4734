// Package logs writes one log line for each event.
//
// It is an event.Recorder. The message is the kind's name, the level is the kind's, the attributes are the event's fields
// that are set. It never decides what is worth a line: the table of kinds does, and the handler's level.
//
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{logs.New(logger)}})
package logs
