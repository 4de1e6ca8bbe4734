// Package recipe renders what a boot reads, from a profile and a host: kernel arguments, boot script, config documents.
//
// It knows operating systems: which arguments their installers take, under which names and how often they read their configuration,
// and how the end of an install is known. It knows no state and serves nothing.
//
//	r, err := recipe.Compile(profile, os.DirFS(l.Appliance.Files))
//	data, err := r.Data(l, host, mac, token)
//	faults := r.Faults(data)                 // what would fail at boot
//	script, err := r.Script(data)            // iPXE
//	doc, err := r.Config(data, name)         // a document rendered for one host alone
//	signals := r.Signals(data)               // how the end of the install is known
//
// Package syntax validates documents; docs/os has a page for each operating system.
//
// A profile without an operating system (no `os`) has its own arguments only.
package recipe
