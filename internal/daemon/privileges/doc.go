// Package privileges decides what the process of the daemon may do: as which user it runs, which capabilities it keeps, and which files it
// may open after its start. It finds what that user could not do.
//
// A start as root tries everything as that user first, and makes nothing if it would be refused. What a reloaded lab names outside of the
// files that the process is confined to is an error that says so. Packages internal/host/process/privilege and confine ask the operating system.
//
//	u, err := privileges.DropTo(a, log)
//	err = privileges.TryStart(l, labPath, documents, u)
//	err = privileges.MakeFolders(a)
//	err = privileges.Drop(u, l) // once all ports are open
//	c, err := privileges.Confine(l, labPath, firmware, log)
//	err = privileges.Outside(c, reloaded)
package privileges
