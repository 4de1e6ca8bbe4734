// Package hostheader decides whether the Host header of a request names this appliance.
//
// A page of another site whose name was made to resolve to our address (DNS rebinding) is of our origin to the browser. The Host header
// still has the site's name, so a server that admins reach with a browser answers only its own names and addresses:
//
//	own := func(host string, port uint16) bool { return hostheader.Own(l, l.Appliance.Admin, host, port) }
//	if !hostheader.Addressed(r, own) {
//		// 421 Misdirected Request
//	}
package hostheader
