// Package watch reports when the lab may have changed: one of its files was written, or SIGHUP came.
//
// It reads no lab. It waits until a file that is being written is closed, and follows the links on the way to a file.
//
//	w, err := watch.New(path, others, log)
//	err = w.Run(ctx, reload, found, changed)
package watch
