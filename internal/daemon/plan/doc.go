// Package plan shows what is derived from a lab, to people as text and to programs as JSON: reservations, pools, zones,
// balancers, boot scripts, config documents and domain XML.
//
// It decides nothing: it prints what the servers answer from. The text has not every value of the lab file; KeysOf has those
// that it has not, so that two labs without a difference in both are alike.
//
//	p, err := plan.Of(snap, "master-0") // or "" for the whole lab
//	err = p.WriteText(os.Stdout)
package plan
