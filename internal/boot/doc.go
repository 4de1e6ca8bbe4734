// Package boot is the desk that says what a machine gets: its script, its config document, its "well done".
//
// It joins three rooms that do not know each other: lab (who is this?), install (installer or disk, which token?) and
// recipe (how is it written?). The servers ask it and serve what it says; it opens no socket.
//
//	table, err := boot.Compile(l)        // every template parsed, and rendered once on trial
//	desk := boot.New(boot.Deps{…})
//	script, err := desk.Script(ctx, mac, from, "boot.ipxe")
//
// A config document carries keys. It goes only to the machine that it was rendered for: the request must come from the
// address that this MAC holds and carry the token of the boot under way.
package boot
