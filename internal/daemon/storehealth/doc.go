// Package storehealth observes the store and the file system that it is on: whether changes can be stored, how fast, and what was lost.
//
// It looks and reports, and repairs nothing. A disk that hangs delays none of its callers.
//
//	w, err := storehealth.New(file, folder, log, registry)
//	err = w.Run(ctx)
//	s := w.Status() // for people
package storehealth
