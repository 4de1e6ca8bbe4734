// Package lab turns the lab file into one immutable, resolved *Lab.
//
// It owns every decision that more than one server must agree on: names, addresses, roles, zones, balancer members and
// the paths and URLs of the boot plane. It knows no server, opens no socket and imports no other room; a server only
// re-indexes what it finds here.
//
//	l, err := lab.Load("/etc/bootlab/lab.yaml", lab.Options{})
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // every problem of the file, each with file:line:column
//	}
//	for _, h := range l.Hosts {
//		fmt.Println(h.FQDN, h.IP)
//	}
//
// Loading runs in three steps: raw (what stands in the file, with positions), resolve (typed values, defaults and
// cross-references) and derive (zones and balancers that follow from hosts and clusters). All problems of all steps are
// reported at once.
package lab
