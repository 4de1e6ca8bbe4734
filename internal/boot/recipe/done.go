package recipe

import "strings"

// Done is the set of signs by which an install is known to be over. The zero Done is none of them: a person says it, or
// time runs out.
type Done uint8

// The signs. Callback is exact and stands alone; the others are guesses for documents that do not call.
const (
	// Callback: the document, or what the recipe adds to it, calls Data.DoneURL once the system is on the disk.
	Callback Done = 1 << iota
	// NextBoot: the machine asks for its script again, long after it read its config document; long after its script
	// where the profile has no document.
	NextBoot
	// SystemLease: its operating system asks for an address anew (DISCOVER or INIT-REBOOT, not a renewal) long after it
	// read its config document. Only of systems whose installer does so no more once it has its document.
	SystemLease
)

// Has reports whether sign is one of d.
func (d Done) Has(sign Done) bool { return d&sign != 0 }

// String returns the signs for people: "callback", "next boot or system lease", "by hand".
func (d Done) String() string {
	var signs []string
	for _, s := range []struct {
		sign Done
		name string
	}{{Callback, "callback"}, {NextBoot, "next boot"}, {SystemLease, "system lease"}} {
		if d.Has(s.sign) {
			signs = append(signs, s.name)
		}
	}
	if signs == nil {
		return "by hand"
	}
	return strings.Join(signs, " or ")
}

// Done returns by which signs the install of d's host is known to be over: the callback alone if its document makes it
// before the machine starts from its disk. A document that is not there yet is asked again at the next boot.
func (r *Recipe) Done(d Data) Done {
	switch calls := r.makesCall() || r.namesDoneURL(d); {
	case calls && r.system.callsLate:
		return Callback | r.system.done
	case calls:
		return Callback
	}
	return r.system.done
}

// makesCall reports whether the recipe itself puts the call into what the machine runs.
func (r *Recipe) makesCall() bool { return r.system.callsFor != nil && r.system.callsFor(r.profile) }

// doneField is how templates name what is to be called.
const doneField = ".DoneURL"

// namesDoneURL reports whether the profile's own templates make the call.
func (r *Recipe) namesDoneURL(d Data) bool {
	for _, arg := range r.profile.Args {
		if strings.Contains(arg, doneField) {
			return true
		}
	}
	if r.profile.IPXE != "" && r.files.names(r.profile.IPXE, doneField) {
		return true
	}
	for _, s := range r.list(d) {
		if s.err == nil && s.file != "" && r.files.names(s.file, doneField) {
			return true
		}
	}
	return false
}
