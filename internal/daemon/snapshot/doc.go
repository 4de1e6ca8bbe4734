// Package snapshot compiles one lab into the tables of all servers and of the boot service.
//
// A Snapshot is immutable. One atomic store of a pointer makes all servers use it, so that no two answer from different labs.
//
//	s, err := snapshot.Compile(l)     // all problems at once; nothing changed
//	s.Gen, s.At = last.Gen+1, now
//	current.Store(s)                  // from here on every server answers from l
//
// Compile reads zone files and documents, and looks which files of machines exist. It reads nothing else.
package snapshot
