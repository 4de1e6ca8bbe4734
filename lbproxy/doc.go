// Package lbproxy balances TCP and HTTP connections over backends.
//
// It owns its listening sockets, the health of every backend and the drains set by an admin. A Table is compiled from the
// lab and never changes. What is learned (health, drains, connection counts) is keyed by balancer and addr:port, so it
// survives a reload. It terminates TLS only in HTTP mode, where a balancer has
// certificates. In TCP mode it reads only the first bytes, and only where several balancers
// share an address or a PROXY header is expected; without a backend it resets the connection.
//
//	table := lbproxy.Compile(l)
//	s, err := lbproxy.New(lbproxy.Config{}, lbproxy.Deps{Events: bus, Log: log, AccessLog: log, Registerer: reg, Now: time.Now})
//	staged, err := s.Stage(table) // opens the sockets that are new, or none
//	staged.Commit()               // the table is in use; sockets it does not have stop accepting, their connections go on
//	err = s.Serve(ctx)            // accepts connections and checks backends until ctx ends, then drains
//
// Sockets come and go with the table, so the server opens them itself, through Deps.Listen.
//
// The way of a TCP connection: Server.accept (listener.go) and accepted (connection.go; proxyprotocol.go, sni.go), pick
// (pick.go; queue.go while every backend is full), connect (connect.go: directly, or the next backend), then an event loop
// (epoll.go) moves bytes between the two sockets (relay.go, splice.go, stream.go).
//
// The way of a request: httpConn.request (httpclient.go; package h1 parses) or http2.ServeHTTP (http2.go), exchange.run
// (httpexchange.go), a backend's connection from its pool (connpool.go, backendconn.go; how many there may be: backendslots.go; in HTTP/2
// http2backend.go), heads both ways
// (httpforward.go), or an answer of our own, its metrics and log line (httpanswer.go).
//
// A Frontend and a Backend are what the table says of a balancer and of one of its servers; a frontend and a backend are the
// same joined with what was learned (activetable.go): health (health.go, ejection.go, check.go, unresponsive.go), addresses (resolve.go), and
// what an admin sets at run time (runtime.go).
package lbproxy
