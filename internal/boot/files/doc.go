// Package files decides which files of the lab may be fetched raw.
//
// It owns one rule that TFTP and HTTP share: every file that a profile names as kernel, initrd, rootfs or image, and
// everything below its tree and below public/, each under its path relative to the lab's files folder. Documents named as
// config, templates and secrets are never served raw, not even below public/ or a tree. It never lists a folder to a
// stranger and never serves what is not a regular file.
//
//	files, err := serving.Compile(l)          // pure: the folder need not be there yet
//	f, err := files.Open("images/vmlinuz")    // confined by os.Root
//	switch {
//	case errors.Is(err, serving.ErrAwaited):  // one of the lab's images, not pulled yet: 503
//	case errors.Is(err, fs.ErrNotExist):      // to be served, but not there: 404
//	case errors.Is(err, fs.ErrPermission):    // not to be served: 403
//	}
//
// Symbolic links are followed as long as they stay inside the files folder and do not lead to a document, a template or a
// secret.
package files
