// Package webserver runs the HTTP/1 servers of the appliance: how connections are accepted, bounded and drained. What is
// answered is its callers' business.
//
//	s := webserver.Server{Conns: connlimit.New(connlimit.Config{Max: 64}), Header: 10 * time.Second, Idle: time.Minute, Drain: time.Second, Log: log}
//	err := s.Run(ctx, ctx, webserver.Binding{Listener: l, Handler: mux})
//
// Every connection has a slot of Conns: one that waits for a request gives way to a new one, one whose request is being
// answered does so last (see connlimit). A handler finds its connection by Of.
package webserver
