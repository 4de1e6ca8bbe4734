// Package privilege turns a root process into one that can do little more than a user.
//
// A daemon starts as root because its sockets need it, opens them, and drops to its own user before the first packet. It keeps
// the named capabilities only, in every thread and in the programs that it starts.
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
