// Package conformance runs other projects' conformance tests against balancers in mode http: h2spec, grpc-go's interop
// client and server, WebSocket clients, and Pebble, an ACME server. It is a module of its own: the product has none of its dependencies.
package conformance
