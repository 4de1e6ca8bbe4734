// Package load reads the lab file into a *lab.Lab.
//
// It works in three steps: decode (what is written, with positions), resolve (typed values, defaults and cross-references)
// and derive (zones and balancers that follow from hosts and clusters). All problems of all steps are returned at once, each
// with file:line:column. The JSON Schema and the tables of keys in docs/lab-file.md are made from the types of raw.go.
//
//	l, err := load.Lab("/etc/bootlab/lab.yaml", load.Options{})
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // every problem of the file
//	}
//	for _, h := range l.Hosts {
//		fmt.Println(h.FQDN, h.IP)
//	}
package load
