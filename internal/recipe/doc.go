// Package recipe turns a profile and a host into what a boot reads: kernel arguments, iPXE script, config document.
//
// It knows operating systems: which arguments their installers take, under which names they fetch their configuration,
// how often, and how they say that they are done. It knows no state and serves nothing.
//
//	r, err := recipe.Compile(profile, os.DirFS(l.Appliance.Files))
//	script, err := r.Script(data)            // iPXE
//	doc, err := r.Config(data, name)         // the document rendered for one host alone
//
// Profiles without an operating system (`os` left out) carry their own arguments.
package recipe
