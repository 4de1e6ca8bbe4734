// Package syntax says where a config document is broken, before a machine boots into it.
//
//	if e := syntax.Check(syntax.Of(".ign"), text); e != nil { … e.Line, e.Column … }
//
// It owns what Ignition, YAML, JSON, XML, cloud-init's user-data, a preseed and a kickstart must look like for their readers
// to take them at all. It knows no host and no file, and does not judge what a document does once it is read: Ignition alone
// is validated whole, by its own library.
package syntax
