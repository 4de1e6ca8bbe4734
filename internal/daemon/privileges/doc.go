// Package privileges decides as which user the daemon runs and which capabilities it keeps, and finds what that user could not do.
//
// A start as root tries everything as that user first, and makes nothing if it would be refused. Package internal/host/privilege asks the
// operating system.
//
//	u, err := privileges.DropTo(a, log)
//	err = privileges.TryStart(l, labPath, documents, u)
//	err = privileges.MakeFolders(a)
//	err = privileges.Drop(u, l) // once all ports are open
package privileges
