// Package adoption lists the machines that the lab does not have, and says with which name and address one could be added.
//
// They are known by what they reported, by their leases and by their timelines, all of which are bounded. It changes nothing.
//
//	m := adoption.Machines{Lab: lab, Book: book, Clock: clock, Timeline: recorder, Reports: reports}
//	all := m.Unknown()
//	a, err := m.Adoption(mac)
package adoption
