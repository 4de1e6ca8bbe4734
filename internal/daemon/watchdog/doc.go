// Package watchdog reports to the service manager that all servers answer, for as long as they do.
//
// It asks each server as a client does, and restarts nothing itself: once a server has not answered, the reports end, and the manager
// (WatchdogSec of systemd.service(5)) restarts the daemon.
//
//	if w := watchdog.New(tests, log); w != nil {
//		err = w.Run(ctx)
//	}
package watchdog
