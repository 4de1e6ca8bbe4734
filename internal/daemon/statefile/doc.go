// Package statefile opens the state file of an appliance: as the store of the daemon, or, while none runs, to restore a backup or to delete
// from it.
//
// A restore is planned before it changes anything, so that one can read what it would do. The state that it replaces is kept.
//
//	s, err := statefile.Hold(l.Appliance)
//	plan, err := statefile.PlanRestore(l, b, s.Entries, statefile.HoldHosts)
//	err = s.Restore(ctx, l.Appliance, plan)
package statefile
