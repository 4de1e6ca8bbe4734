// Package logs writes one log line for each event, and summaries of lines that are alike.
//
// It is an event.Recorder. The message is the kind's name, the level is the kind's, the attributes are the event's fields
// that are set. The table of kinds and the handler's level decide which events are logged.
//
//	bus := event.NewBus(event.BusConfig{Recorders: []event.Recorder{logs.New(logger)}})
//
// The servers' own lines go through a Summarizer, since any client can cause them:
//
//	log := slog.New(logs.NewSummarizer(logger.Handler()))
package logs
