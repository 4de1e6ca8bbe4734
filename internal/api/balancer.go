package api

import (
	"fmt"
	"strconv"
	"time"
)

// A Balancer is one frontend and the health of its backends.
type Balancer struct {
	Name        string    `json:"name"`
	Listen      string    `json:"listen"` // empty: nowhere, backends are only checked
	Mode        string    `json:"mode"`
	Connections int64     `json:"connections"`      // open now
	Queued      int       `json:"queued,omitempty"` // clients that wait for a backend with less than its limit
	Backends    []Backend `json:"backends"`
}

// A BalancerHealth is how many backends of a balancer are in which state.
type BalancerHealth struct {
	Name    string `json:"name"`
	Listen  string `json:"listen"`
	Up      int    `json:"up"`      // take connections
	Unknown int    `json:"unknown"` // of Up: not checked yet
	Down    int    `json:"down"`    // were healthy once, and are not now
	New     int    `json:"new"`     // take none, and were never healthy: not installed yet
	Drained int    `json:"drained"` // by an admin
}

// Empty reports whether it has backends, and none of them is healthy. One without backends redirects.
func (b BalancerHealth) Empty() bool { return b.Up == 0 && b.Down+b.New+b.Drained > 0 }

// String says how many backends are healthy: "0 of 4 healthy, none has been healthy yet", "2 of 3 healthy, 1 not checked yet", "1 of 2 healthy, 1
// drained"; without backends "redirects".
func (b BalancerHealth) String() string {
	if b.Up+b.Down+b.New+b.Drained == 0 {
		return "redirects"
	}
	text := fmt.Sprintf("%d of %d healthy", b.Up-b.Unknown, b.Up+b.Down+b.New+b.Drained)
	if b.Unknown > 0 {
		text += fmt.Sprintf(", %d not checked yet", b.Unknown)
	}
	switch {
	case b.Drained > 0:
		text += fmt.Sprintf(", %d drained", b.Drained)
	case b.Up == 0 && b.Down == 0:
		text += ", none has been healthy yet"
	}
	return text
}

// Healthy counts the backends that take connections, but those that were not checked yet.
func (b Balancer) Healthy() int { return b.count(BackendUp) + b.count(BackendUnchecked) }

// Unknown counts the backends that take connections and were not checked yet.
func (b Balancer) Unknown() int { return b.count(BackendUnknown) }

func (b Balancer) count(state BackendState) (n int) {
	for _, m := range b.Backends {
		if m.State == state {
			n++
		}
	}
	return n
}

// A Backend is one server of a balancer.
type Backend struct {
	Name        string       `json:"name"`
	Addr        string       `json:"addr"`
	State       BackendState `json:"state"`
	Backup      bool         `json:"backup,omitempty"`
	Weight      int          `json:"weight,omitempty"`
	LabWeight   int          `json:"lab_weight,omitempty"` // of the lab file, if another is set at run time
	Added       bool         `json:"added,omitempty"`      // at run time: it is not in the lab file
	Reason      string       `json:"reason,omitempty"`     // of the last failed check
	Since       time.Time    `json:"since,omitzero"`       // in this state
	Connections int64        `json:"connections"`
	Total       int64        `json:"total"`            // connections, in mode http requests, since the start of the daemon
	Errors      int64        `json:"errors"`           // failed connects, in mode http also responses that are 5xx, missing or cut
	P50         float64      `json:"p50_ms,omitempty"` // of the last 10 to 20 seconds, until connected, in mode http until the response began
	P99         float64      `json:"p99_ms,omitempty"`
	Limit       int          `json:"limit,omitempty"` // of Connections; 0: none
}

// Load returns the connections, with the limit if there is one: "3" or "3/10".
func (b Backend) Load() string {
	if b.Limit == 0 {
		return strconv.FormatInt(b.Connections, 10)
	}
	return fmt.Sprintf("%d/%d", b.Connections, b.Limit)
}

// BackendState is the state of a backend.
type BackendState string

// The states of a backend.
const (
	BackendUp       BackendState = "up"
	BackendDown     BackendState = "down"     // it was healthy once, or has no check, and fails
	BackendNew      BackendState = "new"      // it fails its check, and was never healthy: it is not installed yet
	BackendDraining BackendState = "draining" // drained, and still has connections
	BackendDrained  BackendState = "drained"  // it has none any more
	BackendUnknown  BackendState = "unknown"  // not checked yet: it takes connections
	// BackendUnchecked is a backend that nothing checks, and whose connections show no fault: it takes connections.
	BackendUnchecked BackendState = "unchecked"
)

// Drained reports whether it gets no connections because it was drained.
func (s BackendState) Drained() bool { return s == BackendDraining || s == BackendDrained }

// TakesConnections reports whether a backend in that state gets new ones.
func (s BackendState) TakesConnections() bool {
	return s == BackendUp || s == BackendUnchecked || s == BackendUnknown
}

// BackendAction is what can be done to a backend.
type BackendAction string

// The actions on a backend.
const (
	BackendDrain BackendAction = "drain"
	BackendReady BackendAction = "ready"

	BackendAdd    BackendAction = "add"    // until it is removed, or in the lab file
	BackendRemove BackendAction = "remove" // one that was added
	BackendWeight BackendAction = "weight"
)

// A BackendChange is what to do to a backend.
type BackendChange struct {
	Action BackendAction
	Weight int  // of add and weight; 0: of add the one that it has, of weight that of the lab file, else 1
	Backup bool // of add
}
