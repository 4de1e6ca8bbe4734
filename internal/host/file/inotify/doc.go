// Package inotify reports changes of files in folders, as inotify(7) does.
//
// It watches folders, not files: programs replace a file by renaming another one. It reads no file.
//
//	w, err := inotify.Open()
//	err = w.Add("/etc/bootlab")
//	e := <-w.Events()
//	w.Close()
package inotify
