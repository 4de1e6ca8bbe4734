package install

import (
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// A states set has install states by the names of their hosts, and finds them by MAC. A machine that has had several names, one of them as
// a machine of a pool, may have a state under each.
type states struct {
	of    map[string]Status
	byMAC map[lab.MAC][]string
}

func newStates() states { return states{map[string]Status{}, map[lab.MAC][]string{}} }

// nameOf returns the name of the latest state of the machine with that MAC.
func (s states) nameOf(mac lab.MAC) (name string, ok bool) {
	for _, other := range s.byMAC[mac] {
		if !ok || s.of[other].since(s.of[name]) {
			name, ok = other, true
		}
	}
	return name, ok
}

// since reports whether s is later than other; of the same time, one that installs nothing counts.
func (s Status) since(other Status) bool {
	if !s.Since.Equal(other.Since) {
		return s.Since.After(other.Since)
	}
	return s.known() && !other.known()
}

// known reports whether s is a state that a new machine has not.
func (s Status) known() bool { return s.Held || s.State != Armed && s.State != Live }

func (s states) set(host string, next Status) {
	s.drop(host)
	s.of[host] = next
	for _, mac := range next.MACs {
		s.byMAC[mac] = append(s.byMAC[mac], host)
	}
}

func (s states) drop(host string) {
	for _, mac := range s.of[host].MACs {
		s.byMAC[mac] = slices.DeleteFunc(s.byMAC[mac], func(name string) bool { return name == host })
		if len(s.byMAC[mac]) == 0 {
			delete(s.byMAC, mac)
		}
	}
	delete(s.of, host)
}
