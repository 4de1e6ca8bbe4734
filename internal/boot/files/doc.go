// Package files decides which files of the lab may be fetched raw.
//
// It owns one rule that TFTP and HTTP share. What is secret is never served raw, whatever folder it is in: documents that a
// profile names as config or documents, its iPXE script, and the files of passwords and keys. Of the rest, every file that a
// profile names as kernel, initrd, rootfs or image may be fetched, and everything below its tree and below public/, each under
// its path relative to the lab's files folder. Paths are templates: package recipe renders them, for every NIC of every host.
// It never lists a folder and never serves what is not a regular file.
//
//	allowed, err := files.Compile(l)          // pure: the folder need not exist yet
//	f, err := allowed.Open("images/vmlinuz")  // confined to the folder
//	switch {
//	case errors.Is(err, files.ErrAwaited):    // one of the lab's images, not pulled yet: 503
//	case errors.Is(err, fs.ErrNotExist):      // may be fetched, but does not exist: 404
//	case errors.Is(err, fs.ErrPermission):    // may not be fetched: 403
//	}
//
// Symbolic links are followed as long as they stay inside the files folder. A file that has links, has just lost one, or was opened through one, is compared
// with the secret files that exist: what counts is the file, not its name.
package files
