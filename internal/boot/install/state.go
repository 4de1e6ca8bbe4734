package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// State is where a host stands.
type State string

// The states of a host.
const (
	Armed      State = "armed"      // the next boot installs
	Booting    State = "booting"    // it has its script
	Installing State = "installing" // it has its config document
	Installed  State = "installed"  // it starts from its own disk
	Live       State = "live"       // its profile installs nothing: it boots from the network every time
)

// Signs are what an install is known to be over by; with none of them, somebody says so, or time runs out.
type Signs uint8

// The signs. Call is exact, and installers that call are not guessed about; the others are guesses about those that do not.
const (
	Call        Signs = 1 << iota // its installer calls Done
	NextBoot                      // its machine asks for a script again, later than the shortest install takes
	SystemLease                   // an operating system on it asks for an address, later than that
)

func (s Signs) has(sign Signs) bool { return s&sign != 0 }

// may reports whether a host may get from one state to another; docs/install.md draws it. Whatever else is asked for is
// refused with ErrState.
func (s State) may(to State) bool {
	switch to {
	case Armed: // by hand, whatever came before
		return s != Live
	case Booting: // also from itself and from Installing: one more attempt; from Installed with install: always
		return s != Live
	case Installing: // from itself: a document that may be read several times
		return s == Booting || s == Installing
	case Installed: // from Armed: by hand; from itself: what was assumed is now known
		return s != Live
	case Live:
		return s == Live
	}
	return false
}

// ErrToken is returned for a token that is not the one minted for the boot that is under way.
var ErrToken = errors.New("the token is not that of this boot")

// ErrState is returned when the host is not in a state that allows what was asked.
var ErrState = errors.New("no boot of this machine is under way")

// ErrReads is returned when the config document was already read as often as one boot may.
var ErrReads = errors.New("the config document was already read by this boot")

// ErrBusy is returned while a read is under way that would be the last one: whether there may be another is known when it
// is over.
var ErrBusy = errors.New("the config document is being read right now")

// A Status is what is known of one host's install. The zero Status of a host is Armed, or Live if it never installs.
type Status struct {
	State    State     `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Attempts int       `json:"attempts,omitempty"` // scripts served since it was armed, one a boot
	Reads    int       `json:"reads,omitempty"`    // complete reads of the config document in this boot
	Held     bool      `json:"held,omitempty"`     // the loop detector stopped it
	Signs    Signs     `json:"signs,omitempty"`    // by which the install of this boot is known to be over
	Assumed  bool      `json:"assumed,omitempty"`  // installed, as far as the time-out can tell
	Why      string    `json:"why,omitempty"`      // it counts as installed; empty: its installer said so
	Deadline time.Time `json:"deadline,omitzero"`  // when waiting for the installer ends; zero: never
	Minted   time.Time `json:"minted,omitzero"`    // when the boot began that is under way, or the last one
	NIC      lab.MAC   `json:"nic,omitzero"`       // that asked for that boot's script
	Tokens   []sum     `json:"tokens,omitempty"`   // of that boot; more than one if the daemon died at its start
}

// initial returns the status of a host that the store knows nothing of.
func initial(h *lab.Host) Status {
	if h.Profile == nil || h.Profile.Install == lab.InstallNever {
		return Status{State: Live}
	}
	return Status{State: Armed}
}

// localBoot reports whether a host in this status starts from its own disk.
func (s Status) localBoot(h *lab.Host) bool {
	if h.Profile == nil {
		return false
	}
	return s.Held || s.State == Installed && h.Profile.Install == lab.InstallOnce
}

// underWay reports whether a boot in this status may read its document.
func (s Status) underWay() bool {
	return !s.Held && (s.State == Booting || s.State == Installing || s.State == Live)
}

// runs reports whether an installer of h is at work, as far as we can know: it has read its document, or there is none.
func (s Status) runs(h *lab.Host) bool {
	return s.State == Installing || s.State == Booting && h.Profile != nil && h.Profile.Config == ""
}

// public returns s without what others can do nothing good with.
func (s Status) public() Status {
	s.Tokens = nil
	return s
}

// A stored status may be one of before tokens were kept as sums.
type stored struct {
	Status
	Token string `json:"token,omitempty"`
}

func decode(host string, b []byte) (Status, error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("read install state of %s: %w", host, err)
	}
	if s.Token != "" {
		s.Tokens = append(s.Tokens, sumOf(s.Token))
	}
	return s.Status, nil
}
