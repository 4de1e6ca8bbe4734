// Package lbproxy balances TCP and HTTP connections over backends.
//
// It owns its listening sockets, the health of every backend and the drains set by an admin. A Table is compiled from the
// lab and never changes. What is learned (health, drains, connection counts) is keyed by balancer and addr:port, so it
// survives a reload. It terminates TLS only in HTTP mode, where a balancer has
// certificates. In TCP mode it reads only the first bytes, and only where several balancers
// share an address or a PROXY header is expected; without a backend it resets the connection.
//
//	table := lbproxy.Compile(l)
//	s, err := lbproxy.New(lbproxy.Config{}, lbproxy.Deps{Table: current, Events: bus, Log: log, Registerer: reg, Now: time.Now})
//	staged, err := s.Stage(table) // opens the sockets that are new, or none
//	staged.Commit()               // the table is in use; sockets it does not have stop accepting, their connections go on
//	err = s.Serve(ctx)            // accepts connections and checks backends until ctx ends, then drains
//
// Sockets come and go with the table, so the server opens them itself, through Deps.Listen.
//
// The way of a TCP connection: Server.accept (listener.go) and accepted (connection.go), pick (pick.go) and connectDirect
// (direct.go), then an event loop (loop.go) moves bytes between the two sockets (stream.go, relay.go, mover.go), until it has ended (tcplog.go). What needs more
// has a goroutine until it is connected: route (connection.go: PROXY header, server name), connect (connect.go: the next backend).
//
// The way of a request: httpConn.request (httpclient.go; package h1 parses) or http2.ServeHTTP (http2.go, http2stream.go),
// exchange.run (httpexchange.go), a backend's connection (httpmember.go; in HTTP/2 http2member.go), the response back
// (httpforward.go), or an answer of our own (httpanswer.go); its metrics and log line (httplog.go).
package lbproxy
