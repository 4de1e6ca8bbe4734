// Package recipe turns a profile and a host into what a boot reads: kernel arguments, iPXE script, config document.
//
// It knows operating systems: which arguments their installers take, under which names they fetch their configuration,
// how often, and how they say that they are done. It knows no state and serves nothing.
//
//	r, err := recipe.Compile(profile, os.DirFS(l.Appliance.Files))
//	faults := r.Faults(data)                 // what would go wrong
//	script, err := r.Script(data)            // iPXE
//	doc, err := r.Config(data, name)         // a document rendered for one host alone
//	signs := r.Done(data)                    // by what the install is known to be over
//
// What documents must look like is the business of internal/boot/syntax; docs/os has a page for each system.
//
// Profiles without an operating system (`os` left out) carry their own arguments.
package recipe
