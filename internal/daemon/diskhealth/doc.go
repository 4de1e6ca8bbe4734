// Package diskhealth observes the disks that a lab needs: whether the store takes changes, how fast, and what was lost; free space of folders;
// files of the lab that were removed.
//
// It looks in the background and reports, and repairs nothing. A disk that hangs delays none of its callers.
//
//	w, err := diskhealth.New(file, folder, log, registry)
//	err = w.Run(ctx)
//	s := w.Status() // for people
//	folders.Look(dirs...)
//	all := folders.Conditions()
//	files.Look(l)
//	gone := files.Missing(l)
package diskhealth
