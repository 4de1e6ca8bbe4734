// Package privilege turns a root process into one that can do little more than a user.
//
// A daemon starts as root because its sockets need it, opens them, and drops to a user of its own before the first packet.
// What is kept is named by capability; everything else is gone for good, in every thread and in what the process may start.
//
//	u, err := privilege.Lookup("bootlab")
//	if err != nil {
//		return err // says how to make the user
//	}
//	if err := u.Own("/var/lib/bootlab", "/run/bootlab"); err != nil {
//		return err
//	}
//	// … open sockets …
//	return u.Drop(privilege.NetBindService, privilege.NetRaw)
package privilege
