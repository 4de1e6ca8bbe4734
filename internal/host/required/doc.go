// Package required checks what a constructor is given.
//
//	func New(cfg Config, deps Deps) *Server {
//		required.Fields(deps, "Panics") // without Panics they are only logged
//		…
//	}
//
// A missing dependency is a bug of the caller: it panics in the constructor and is never asked for later.
package required
