// Package disks observes what the disks of a lab still have: free space for its folders, and the files that machines need.
//
// It looks in the background, and repairs nothing. A disk that hangs delays none of its callers.
//
//	folders.Look(dirs...)
//	all := folders.Conditions()
//	files.Look(l)
//	gone := files.Missing(l)
package disks
