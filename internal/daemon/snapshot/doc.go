// Package snapshot compiles one lab into what every server answers from: the six lenses, and the desk's.
//
// A Snapshot is immutable and is put in force by one atomic store of a pointer, so that no two servers ever answer from
// different labs for longer than that store takes.
//
//	s, err := snapshot.Compile(l)     // all problems at once; nothing changed
//	s.Gen, s.At = last.Gen+1, now
//	current.Store(s)                  // from here on every server answers from l
//
// It holds no state and asks nobody: a lab that compiles here may be put in force.
package snapshot
