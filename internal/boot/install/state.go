package install

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A State is the install state of a host.
type State string

// The states of a host.
const (
	Armed      State = "armed"      // the next boot installs
	Booting    State = "booting"    // the machine has received its script
	Installing State = "installing" // the installer has its config document
	Installed  State = "installed"  // the machine starts from its own disk
	Live       State = "live"       // its profile installs nothing: it boots from the network every time
	Unknown    State = "unknown"    // its state was lost: it starts from its own disk until an admin says what it is. Never stored
)

// Signals are the completion signals of an install: how its end is known. With none of them an admin marks the host as installed, or
// install_timeout does.
type Signals uint8

// The completion signals. Callback is exact and stands alone, where the installer can call before the machine starts from its disk. The
// others are guesses for installers that do not call.
const (
	// Callback: the installer calls Done once the system is on the disk.
	Callback Signals = 1 << iota
	// NextBoot: the machine requests its script again, long after it read its config document; long after its script where the
	// profile has no document.
	NextBoot
	// SystemLease: an operating system asks for a new lease (by DISCOVER, not a renewal) long after the machine read its
	// config document. Only of systems whose installer does not do so itself once it has its document.
	SystemLease
)

// Has reports whether signal is one of s.
func (s Signals) Has(signal Signals) bool { return s&signal != 0 }

// String returns the signals for people: "callback", "next boot or system lease", "by hand".
func (s Signals) String() string {
	var names []string
	for _, signal := range []struct {
		signal Signals
		name   string
	}{{Callback, "callback"}, {NextBoot, "next boot"}, {SystemLease, "system lease"}} {
		if s.Has(signal.signal) {
			names = append(names, signal.name)
		}
	}
	if names == nil {
		return "by hand"
	}
	return strings.Join(names, " or ")
}

// may reports whether a host may go from one state to another; docs/install.md draws them. Any other transition is ErrState.
func (s State) may(to State) bool {
	switch to {
	case Armed: // bootlab install, from every state
		return s != Live
	case Booting: // also from itself and from Installing: one more attempt; from Installed with install: always
		return s != Live && s != Unknown
	case Installing: // from itself: a document that is read several times
		return s == Booting || s == Installing
	case Installed: // from Armed: --done; from itself: a callback after install_timeout
		return s != Live
	case Live:
		return s == Live
	}
	return false
}

// ErrToken is returned for a token that is not of the boot under way.
var ErrToken = errors.New("the token is not that of this boot")

// ErrState is returned if the state of the host does not allow the request.
var ErrState = errors.New("no boot of this machine is under way")

// ErrReads is returned if this boot has read the config document as often as it may.
var ErrReads = errors.New("the config document was already read by this boot")

// ErrBusy is returned while the last read is under way: if it breaks off, another is allowed.
var ErrBusy = errors.New("the config document is being read right now")

// A Status is the install status of one host.
type Status struct {
	State    State     `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Attempts int       `json:"attempts,omitempty"` // scripts served since it was armed, one a boot
	Reads    int       `json:"reads,omitempty"`    // complete reads of the config document in this boot
	Held     bool      `json:"held,omitempty"`     // stopped after too many attempts, or by a restore
	Signals  Signals   `json:"signals,omitempty"`  // of this boot
	Assumed  bool      `json:"assumed,omitempty"`  // installed by install_timeout
	ByAdmin  bool      `json:"by_admin,omitempty"` // installed by bootlab install HOST --done
	Why      string    `json:"why,omitempty"`      // it counts as installed, empty: the installer called back; or a restore holds it
	Deadline time.Time `json:"deadline,omitzero"`  // of install_timeout; zero: none
	Minted   time.Time `json:"minted,omitzero"`    // when the boot under way, or the last, got its token
	NIC      lab.MAC   `json:"nic,omitzero"`       // that requested its script
	MACs     []lab.MAC `json:"macs,omitempty"`     // of the machine: the state is theirs, whatever the name of the host
	Tokens   []sum     `json:"tokens,omitempty"`   // of that boot; several if the daemon restarted meanwhile

	Other string `json:"-"` // Unknown because of that host or machine, not of a loss

	Requested *requested `json:"requested,omitempty"` // the boot that begins when its script is received; nil: none
}

// initial returns the status of a host that is not in the store.
func initial(h *lab.Host) Status {
	if h.Profile == nil || h.Profile.Install == lab.InstallNever {
		return Status{State: Live}
	}
	return Status{State: Armed}
}

// Initial returns the state of a host that has none in the store, of which nothing was lost.
func Initial(h *lab.Host) State { return initial(h).State }

// localBoot reports whether h starts from its own disk.
func (s Status) localBoot(h *lab.Host) bool {
	if h.Profile == nil {
		return false
	}
	return s.Held || s.State == Unknown || s.State == Installed && h.Profile.Install == lab.InstallOnce
}

// underWay reports whether a boot in this status may read its document.
func (s Status) underWay() bool {
	return !s.Held && (s.State == Booting || s.State == Installing || s.State == Live)
}

// runs reports whether an installer of h is running: it has read its document, or has its script and there is no document.
func (s Status) runs(h *lab.Host) bool {
	return s.State == Installing || s.State == Booting && h.Profile != nil && h.Profile.Config == ""
}

func decode(host string, b []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("read install state of %s: %w", host, err)
	}
	if !slices.Contains([]State{Armed, Booting, Installing, Installed, Live}, s.State) {
		return Status{}, fmt.Errorf("read install state of %s: %q is none", host, s.State)
	}
	return s, nil
}

// maxTokens bounds the tokens of one boot: each restart of the daemon while a machine requests its script adds one. It also bounds those
// of a requested boot, where a request later than sameBoot adds one too.
const maxTokens = 4

// A sum is the hash of a token. The store holds sums only, so that a backup of it cannot read documents. A token has 128 random bits: a
// plain hash is enough.
type sum string

func sumOf(token string) sum {
	h := sha256.Sum256([]byte(token))
	return sum(hex.EncodeToString(h[:]))
}

// knows reports, in constant time, whether token is one of this boot; an empty one never is.
func (s Status) knows(token string) bool { return knows(s.Tokens, token) }

func knows(tokens []sum, token string) bool {
	got, found := []byte(sumOf(token)), 0
	for _, want := range tokens {
		found |= subtle.ConstantTimeCompare([]byte(want), got)
	}
	return token != "" && found == 1
}

// withToken returns s with one more token.
func (s Status) withToken(token string) Status {
	s.Tokens = withToken(s.Tokens, token)
	return s
}

func withToken(tokens []sum, token string) []sum {
	tokens = append(slices.Clone(tokens), sumOf(token))
	return tokens[max(0, len(tokens)-maxTokens):]
}
