// Package records reads and writes the records of a store that are JSON, each below a prefix of its kind.
//
// Read counts what cannot be decoded as lost. A Saver writes what no request has to wait for: a disk that hangs delays its
// callers for a moment only.
//
//	err := records.Read(ctx, s, "serial/", func(origin string, z zoneSerial) error { ... })
//	err = saver.Put("serial/"+origin, z)
package records
