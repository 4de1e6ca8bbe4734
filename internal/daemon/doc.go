// Package daemon is the composition: it alone knows all servers. It builds, starts, reloads and stops them, and does what the admin API
// asks of them; what has a subject of its own and needs little of the daemon is in the packages below.
//
// Run loads the lab, opens every socket, drops privileges, starts the servers on one snapshot and keeps that snapshot
// true to the lab file until its context ends:
//
//	err := daemon.Run(ctx, daemon.Config{Lab: "/etc/bootlab/lab.yaml", Log: logger})
//
// How a lab comes into force (Apply): parse and resolve, compile, stage the listeners that are new; any failure up to
// here leaves everything as it was. Then one atomic store switches all servers, and listeners that are no longer needed are closed.
package daemon
