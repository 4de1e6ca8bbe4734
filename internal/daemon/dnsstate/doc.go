// Package dnsstate keeps what DNS zones need over restarts: the RRsets of dynamic updates, and the serials.
//
// It answers nothing: package dnsd plans an update and serves what is kept. A disk that hangs delays updates, and no reload.
//
//	u, err := dnsstate.OpenUpdates(ctx, s, log)
//	err = u.Change(ctx, plan, use)
//	serials, err := dnsstate.OpenSerials(ctx, s, saver, log)
//	table = serials.Assign(table)
package dnsstate
