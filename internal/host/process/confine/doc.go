// Package confine limits what the running process may still do: which files it may open, and which system calls it may make.
//
// A process that was taken over by a bug can then read and change no more than what it serves. Files are limited by Landlock,
// system calls by seccomp. Both hold for every thread and for every program that the process starts, and cannot be undone. A
// kernel without one of them is no error: the result says what is missing. It opens no socket and changes no user; package
// privilege does that.
//
//	c, err := confine.Apply(confine.Paths{
//		Execute: []string{"/usr"},
//		Read:    []string{"/etc", "/srv/lab"},
//		Write:   []string{"/var/lib/bootlab"},
//	})
//	if err != nil {
//		return err
//	}
//	log.Info("process confined", "files", c.Files, "system_calls", c.Calls)
//	if c.Outside("/home/me/key") {
//		// … it cannot be read before a restart with other paths …
//	}
package confine
