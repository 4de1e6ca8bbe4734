package power

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// ipmiBoot sets what a machine boots from. The flags are those of a boot parameter of IPMI 2.0 section 28.13.
func ipmiBoot(ctx context.Context, b *lab.BMC, d Device, how How) error {
	command := []string{"chassis", "bootdev", map[Device]string{DeviceDefault: "none", DeviceNetwork: "pxe", DeviceDisk: "disk", DeviceCD: "cdrom"}[d]}
	var options []string
	if how == Always && d != DeviceDefault {
		options = append(options, "persistent")
	}
	if b.Firmware == lab.FirmwareUEFI {
		options = append(options, "efiboot")
	}
	if len(options) > 0 {
		command = append(command, "options="+strings.Join(options, ","))
	}
	_, err := ipmitool(ctx, b, command...)
	return err
}

// ipmiPower switches the power of a machine, or asks for it.
func ipmiPower(ctx context.Context, b *lab.BMC, a Action) (State, error) {
	if a == NetBoot {
		if err := ipmiBoot(ctx, b, DeviceNetwork, Once); err != nil {
			return "", err
		}
		a = Reset
	}
	out, err := ipmitool(ctx, b, "chassis", "power", "status")
	if err != nil {
		return "", err
	}
	state := ipmiState(out)
	switch {
	case a == Status, a == On && state == StateOn, a == Off && state == StateOff:
		return state, nil
	case a == Reset && state == StateOff:
		a = On
	}
	_, err = ipmitool(ctx, b, "chassis", "power", string(a))
	if err != nil && a == Reset && strings.Contains(err.Error(), invalidField) {
		err = ipmiOffOn(ctx, b)
	}
	if err != nil {
		return "", err
	}
	if a == Off {
		return StateOff, nil
	}
	return StateOn, nil
}

// invalidField is ipmitool's text for what a controller answers to a chassis control that it does not have (IPMI 2.0, completion code CCh).
// Power cycle is an optional one (section 28.3): virtualbmc lacks it.
const invalidField = "Invalid data field in request"

// offPoll is how often a controller is asked whether its machine is off.
const offPoll = 500 * time.Millisecond

// ipmiOffOn switches a machine off, and on once it is off.
func ipmiOffOn(ctx context.Context, b *lab.BMC) error {
	if _, err := ipmitool(ctx, b, "chassis", "power", string(Off)); err != nil {
		return err
	}
	for {
		out, err := ipmitool(ctx, b, "chassis", "power", "status")
		if err != nil {
			return err
		}
		if ipmiState(out) == StateOff {
			_, err := ipmitool(ctx, b, "chassis", "power", string(On))
			return err
		}
		select {
		case <-time.After(offPoll):
		case <-ctx.Done():
			return fmt.Errorf("controller %s: the machine was switched off and is on still: %w", b.IPMI, ctx.Err())
		}
	}
}

// ipmiState reads the answer of ipmitool chassis power status.
func ipmiState(out string) State {
	if strings.Contains(strings.ToLower(out), "is off") {
		return StateOff
	}
	return StateOn
}

// ipmitool runs ipmitool, which speaks RMCP+ (IPMI 2.0). The password is passed in a file, because every user of a machine can
// read command lines.
func ipmitool(ctx context.Context, b *lab.BMC, command ...string) (string, error) {
	tool, err := exec.LookPath("ipmitool")
	if err != nil {
		return "", errors.New("bmc.ipmi needs ipmitool, which is not installed: apt install ipmitool, or use bmc.redfish")
	}
	if _, err := readPassword(b.PasswordFile); err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(b.IPMI)
	if err != nil {
		host, port = b.IPMI, "623"
	}
	args := []string{"-I", "lanplus", "-H", host, "-p", port, "-N", "1", "-R", "3"}
	if b.Username != "" {
		args = append(args, "-U", b.Username)
	}
	if b.PasswordFile != "" {
		args = append(args, "-f", b.PasswordFile)
	}
	out, err := exec.CommandContext(ctx, tool, append(args, command...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("controller %s: ipmitool %s: %w: %s", b.IPMI, strings.Join(command, " "), err, lab.Tidy(string(out), maxMessage))
	}
	return string(out), nil
}
