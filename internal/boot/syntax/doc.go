// Package syntax finds the first error in a config document, before a machine boots with it.
//
//	if e, _ := syntax.Report(syntax.Of(".ign"), text); e != nil { … e.Line, e.Column … }
//
// It knows Ignition, YAML, JSON, XML, cloud-init's user-data, preseeds and kickstarts. It knows no host and no file, and checks syntax only:
// Ignition alone is validated completely, by its own library.
package syntax
