// Package bolt keeps learned state in one bbolt file, with a journal in front of it: the store of a single machine.
//
//	s, err := bolt.Open("/var/lib/bootlab/bootlab.db")
//	if err != nil { … held by another bootlab, or damaged: the error says what to do … }
//	defer s.Close()
//	err = s.Commit(ctx, store.Put("lease/192.168.16.130", b)) // nil: it is on the disk
//	outcomes := s.CommitAll(ctx, txns)                         // many changes, one sync, an outcome each
//
// It owns the file, its lock, the two journal files beside it, and one goroutine that empties them. A damaged file is an
// error from Open, not the end of the process. The database does not shrink when keys go; bbolt uses the free pages again.
//
// # Commit
//
// All calls that arrive while the disk syncs form the next group (queue.go). Their conditions are asked of what was written
// lately (overlay.go) and then of bbolt; what holds becomes one record of the journal, one write and one fdatasync
// (journal.go, record.go), and is then visible. bbolt alone would copy and write every page that a group touches, and sync
// twice: three to five times the processor time for each key.
//
// The caller does that work itself, and a group never waits for more calls to come: a lone caller meets no other goroutine.
//
// # Checkpoint
//
// The journal has two files that take turns, each the journal of one epoch. Once a file holds 2 MiB, or five seconds
// after commits became few, a new epoch begins in the other file, and the keys of the old one are copied to bbolt, sorted,
// 128 in a transaction, while commits go on (checkpoint.go). With the last of them bbolt notes that it has this epoch; its file
// may then be written over. A file that is written over and not made longer is synced for two thirds of the price, and what
// is left in it of older epochs is never taken for new: each record carries its epoch. Two files are simpler than one ring,
// because a file belongs to one epoch as a whole; a third would only help if a checkpoint took longer than it takes to
// fill 4 MiB, and then commits should rather wait, as they do.
//
// Until it is copied an epoch is kept in memory as well. That is at most two epochs, some 20 MiB in a storm, and nothing
// once all is quiet.
//
// # Kills, power cuts, full disks
//
// Open replays whole records in order (recover.go). A record that is not whole and the last of all was cut off with the
// power; nobody was told that it is durable. One that others follow is damage, and an error. Close copies
// everything and deletes the journal: a database at rest is one file.
//
// A record that cannot be written is cut out again, and its callers are told. After a sync that failed, pages that
// the kernel gave up would look clean to the next one: then everything goes to bbolt, and the journal starts anew
// in new files. Until that has worked, commits fail; each tries again, and so does the checkpointer every second.
package bolt
