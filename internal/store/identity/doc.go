// Package identity distinguishes the first start of a store from its loss.
//
// A store has a random name and counts its starts and installs. Markers, small files outside the database, hold the same: one in the state folder, one
// beside the lab. A marker without its store, or with another or an older one, shows a loss. So does a store that knows other hosts than the
// lab has: its markers may have come with it; and where markers and store are gone, something else that the user of the store has left. The
// package decides nothing else: what a loss means for machines is the business of package install.
//
//	id, err := identity.Find(ctx, s, macs, "", "/var/lib/bootlab/state.marker", identity.BesideLab("/etc/bootlab/lab.yaml"))
//	if err != nil { … the store cannot be read … }
//	if id.Lost() != "" { … hold what depends on the lost state … }
//	err = id.Keep(ctx, uid, gid)       // the store is in use now: write name and markers, unless it is lost
//	err = id.Advance(ctx)              // hosts were installed: an older copy of the store would install them again
//	err = id.Accept(ctx, more...)      // an admin takes the store as it is
package identity
