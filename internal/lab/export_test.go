package lab

// Exact reports whether the pattern matches one value only.
func (p Pattern) Exact() bool { return !p.glob }
