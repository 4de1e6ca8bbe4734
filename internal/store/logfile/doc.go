// Package logfile is the store of a single machine: one append-only file with checksums.
//
//	s, damage, err := logfile.Open("/var/lib/bootlab/state.db")
//	if err != nil { … in use by another bootlab, or of a newer format … }
//	for _, l := range damage { … log what this start has found … }
//	defer s.Close()
//	err = s.Commit(ctx, store.Put("lease/192.168.16.130", b)) // nil: it is on disk
//
// It owns the file and its lock. Keys and the positions of their values are in memory, in order (some 75 bytes a key); values
// stay in the file, and every value that is read is compared with its checksum.
//
// # Commit
//
// One transaction is one record. The first caller writes; all calls that arrive while the disk syncs form the next group,
// which shares one write and one fdatasync (store.go). A lone caller needs no other goroutine. A record that cannot be
// written is truncated and its callers get the error. After a failed fdatasync the kernel may have dropped the pages and
// marked them clean, so the file takes no more records: everything is copied to a new file first.
//
// # Compaction
//
// When more than half of the file is dead, the live records are copied to a new file in the background, with pauses, and then
// those that were committed meanwhile. The new file is synced and renamed to the old name, and the folder is synced
// (compact.go). A crash at any moment leaves one of the two files, whole.
//
// # Format
//
// All numbers are little endian; sums are CRC-32C.
//
//	file     header · zeros up to 4096 · header · zeros up to 8192 · records · zeros
//	header   8 "bootlab\n" · 4 version · 4 marker, random for each file · 8 sequence number · 8 size · 4 sum of those
//	record   4 marker · 4 sum of the rest · 4 length of the payload · 4 index in its group · 8 sequence number · payload
//	payload  operations: uvarint of the key's length × 2, + 1 to delete · key · unless it deletes: uvarint length · value
//
// A header is a mark: the records up to that one were durable when it was written, and the file had at least that size. Each
// mark is written in place of the older one, every second in which there were commits, and by Close. Later versions keep the
// header, so that an older program can name the version it refuses; they must change the sum of records. The version is also that of
// the values that bootlab's packages store: who changes one so that an older program cannot decode it raises the version.
//
// # Damage
//
// Open reads the file from start to end (read.go). One wrong bit in a record of up to 4 KiB is corrected; a header is restored from the other.
// Other bytes that are not a whole record are skipped up to the next marker with a matching sum. What they held is lost if it
// had been acknowledged: a later group follows, or a mark covers it. Else it is a write that a crash cut short, and is undone
// from its first missing record on, so the store is always in a state that it had before. A file that is shorter than its mark
// says was cut.
//
// What cannot be known: whether commits are missing at the end that are younger than the last mark, at most one second; or that a
// whole, older file was put in place of this one.
//
// A record that is whole, and that its owner cannot decode, is damage, too: the owner reports it with MarkLost.
//
// A file that has lost something is never written again. It is renamed FILE.damaged-TIME, after its readable records were
// copied to a new one. The losses are records of the new file (loss.go). Compaction keeps the order of records then, so that
// Doubtful can tell which keys are older than a loss, until AcceptLosses deletes them.
package logfile
