// Package importer makes a lab file from the configuration of another server.
//
// Each format has one reader, which fills a draft: networks, hosts, zones, balancers. The draft becomes YAML in one place. What the
// lab file cannot say becomes a Note with file and line; nothing is left out silently. The loader stays the only judge of a lab: the
// text is given to Options.Check, entries that it refuses are left out with its reason, and the result always loads.
//
//	r, err := importer.Import(importer.Dnsmasq, []string{"/etc/dnsmasq.conf"}, importer.Options{Check: check})
//	for _, n := range r.Notes {
//		fmt.Fprintln(os.Stderr, n)
//	}
//	os.Stdout.Write(r.Lab)
//
// ImportMachines does the same with the domains of a hypervisor, which virt reads.
//
// The formats are read by tokenizers of their own: parsers of other projects lose the line of a statement, or drop statements that
// they do not know, and both are needed for the notes.
package importer
