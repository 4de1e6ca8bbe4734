package confine

import "strings"

// Missing reports whether one of the two limits does not hold.
func (c *Confinement) Missing() bool {
	return strings.HasPrefix(c.Files, off) || strings.HasPrefix(c.Calls, off)
}
