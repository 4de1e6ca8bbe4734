package power

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// timeout is of a whole power cycle: controllers are slow, and some queue requests.
const timeout = time.Minute

// An Action is what Do does with the power of a machine.
type Action string

// The actions. All but Status and On do not ask the system.
const (
	Status  Action = "status"
	On      Action = "on"
	Off     Action = "off"
	Reset   Action = "cycle"   // off and on; on, if it is off
	NetBoot Action = "netboot" // as Reset, and the next boot is from the network, once
)

// A State is whether a machine has power.
type State string

// The states. A controller has others, such as PoweringOn, which are lower case here too.
const (
	StateOn  State = "on"
	StateOff State = "off"
)

// Do switches the power of the machine behind b, or asks for it, and returns the state that the controller reported, or that was
// requested. Only NetBoot changes anything about the next boot. The error names the controller and says what it refused and, if known,
// what to do.
func Do(ctx context.Context, b *lab.BMC, a Action) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if b.IPMI != "" {
		return ipmiPower(ctx, b, a)
	}
	var state State
	err := withRedfish(b, func(r *redfish) (err error) {
		state, err = r.power(ctx, a)
		return err
	})
	return state, err
}

// A Device is what a machine boots from.
type Device string

// The devices. DeviceDefault is the boot order of the firmware.
const (
	DeviceDefault Device = "default"
	DeviceNetwork Device = "network"
	DeviceDisk    Device = "disk"
	DeviceCD      Device = "cd"
)

// How long a boot device stays.
type How string

// The ways to set a boot device.
const (
	Once   How = "once"   // for the next boot
	Always How = "always" // until another is set
)

// Boot sets what the machine behind b boots from. Its power stays as it is.
func Boot(ctx context.Context, b *lab.BMC, d Device, how How) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if b.IPMI != "" {
		return ipmiBoot(ctx, b, d, how)
	}
	return withRedfish(b, func(r *redfish) error { return r.boot(ctx, d, how) })
}

// withRedfish calls f with the Redfish service of b.
func withRedfish(b *lab.BMC, f func(*redfish) error) error {
	password, err := readPassword(b.PasswordFile)
	if err != nil {
		return err
	}
	r, err := newRedfish(b, password)
	if err != nil {
		return err
	}
	if err := f(r); err != nil {
		return addHint(b, err)
	}
	return nil
}

// readPassword returns the first line of a file; without a file, no password.
func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := regular.Read(file, regular.Small)
	if err != nil {
		return "", fmt.Errorf("read bmc.password_file: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r"), nil
}

// addHint adds the controller, and for common errors what to do.
func addHint(b *lab.BMC, err error) error {
	err = fmt.Errorf("controller %s: %w", b.Redfish, err)
	switch {
	case untrusted(err):
		return fmt.Errorf("%w; set bmc.ca_file to its certificate, or bmc.insecure: true to accept any", err)
	case errors.Is(err, errCredentials):
		return fmt.Errorf("%w; check bmc.username and bmc.password_file", err)
	}
	return err
}

// maxMessage is how many bytes of a controller's message an error may contain.
const maxMessage = 200
