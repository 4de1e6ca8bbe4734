// Package bolt keeps learned state in one bbolt file: the store of a single machine.
//
// It owns the file, its lock, and one goroutine that writes. All commits that arrive while the disk syncs share the next
// sync, so that a boot storm costs a few syncs and not thousands. It never waits for more commits to come: a lone caller
// pays one sync and nothing else.
//
//	s, err := bolt.Open("/var/lib/bootlab/bootlab.db")
//	if err != nil { … held by another bootlab, or damaged: the error says what to do … }
//	defer s.Close()
//	err = s.Commit(ctx, store.Put("lease/192.168.16.130", b)) // nil: it is on the disk
//
// A damaged file is an error from Open, not the end of the process. The file does not shrink when keys go; bbolt uses the
// free pages again.
package bolt
