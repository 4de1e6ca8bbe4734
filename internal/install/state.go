package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"bootlab/internal/lab"
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

// ErrToken is returned for a token that is not the one minted for the boot that is under way.
var ErrToken = errors.New("the token is not that of this boot")

// ErrState is returned when the host is not in a state that allows what was asked.
var ErrState = errors.New("no boot of this machine is under way")

// ErrReads is returned when the config document was already read as often as one boot may.
var ErrReads = errors.New("the config document was already read by this boot")

// A Status is what is known of one host's install. The zero Status of a host is Armed, or Live if it never installs.
type Status struct {
	State    State     `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Attempts int       `json:"attempts,omitempty"` // scripts served since it was armed, one a boot
	Reads    int       `json:"reads,omitempty"`    // complete reads of the config document in this boot
	Held     bool      `json:"held,omitempty"`     // the loop detector stopped it
	Token    string    `json:"token,omitempty"`    // of the boot under way, or of the last one; secret
	Minted   time.Time `json:"minted,omitzero"`    // when Token was
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

func decode(host string, b []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("read install state of %s: %w", host, err)
	}
	return s, nil
}
