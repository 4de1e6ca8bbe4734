// Package backup is the file that a store is saved to and restored from.
//
// It owns the format: what a backup is called, and how a damaged, cut or newer one is recognised. It neither opens files nor
// interprets values.
//
//	summary, err := backup.Write(ctx, w, store, backup.Header{Lab: "telco", Version: "v0.2.0", Created: time.Now()})
//	…
//	b, err := backup.Read(r) // an error for any backup that is not whole
//	for _, e := range b.Entries { … e.Key, e.Value … }
//
// # Format
//
// Lines of JSON: a header, one entry for each key in the order of the keys, and an end.
//
//	{"bootlab_backup":1,"lab":"telco","version":"v0.2.0","created":"2026-11-22T03:00:00Z"}
//	{"key":"lease/192.168.16.130","value":"AgFSVAAAABFp…"}
//	{"entries":1,"kinds":{"lease":1},"sha256":"5f0c…"}
//
// Values are base64, because the owners of some write binary records. The sum is of all bytes before the line that holds it. A
// writer that fails ends the file with a line {"error":"…"} in place of the end, which a reader reports. Later versions keep
// the key bootlab_backup, so that an older program can name the version that it refuses.
package backup
