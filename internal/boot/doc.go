// Package boot decides what a machine boots: its script, its config document, and whether its install is done.
//
// It joins three packages that do not know each other: lab (which host is this?), install (installer or disk, which token?) and
// recipe (how is it written?). The servers call it and serve what it returns; it opens no socket.
//
//	table, err := boot.Compile(l)        // every template parsed, and rendered once as a check
//	service := boot.New(boot.Deps{…})
//	script, err := service.Script(ctx, mac, from, "boot.ipxe")
//
// A config document carries keys. It goes only to the machine that it was rendered for: the request must come from the address that
// this MAC holds and carry the token of the boot under way.
package boot
