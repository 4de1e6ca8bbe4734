// Package serverstate keeps in the store what servers have to know after a restart: of DNS zones the RRsets of dynamic updates and the serials,
// of virtual machines and hypervisors one record each.
//
// It answers nothing: package dnsd plans an update and serves what is kept. A disk that hangs delays updates, and no reload.
//
//	u, err := serverstate.OpenUpdates(ctx, s, log)
//	err = u.Change(ctx, plan, use)
//	serials, err := serverstate.OpenSerials(ctx, s, saver, log)
//	table = serials.Assign(table)
//	placements := serverstate.Placements(s, saver)
//	all, err := placements.Load(ctx)
package serverstate
