// Package handover keeps listening sockets across a restart of the process, with the help of systemd.
//
// It opens no socket. It knows none but those that it is given, and those that the process was started with; without systemd it does nothing.
//
//	h := handover.New(log)
//	l := h.Take(addr) // nil: the caller opens one, and h.KeepListener(addr, l)
//	h.CloseOthers()   // once all are taken
//	h.Stop()          // before those that the next process gets are closed
package handover
