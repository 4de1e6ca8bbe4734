package power

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// ipmi restarts a machine with ipmitool, which speaks RMCP+ (IPMI 2.0). The password is passed in a file, because every
// user of a machine can read command lines.
func ipmi(ctx context.Context, b *lab.BMC) error {
	tool, err := exec.LookPath("ipmitool")
	if err != nil {
		return errors.New("bmc.ipmi needs ipmitool, which is not installed: apt install ipmitool, or use bmc.redfish")
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
	run := func(command ...string) (string, error) {
		out, err := exec.CommandContext(ctx, tool, append(args, command...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("controller %s: ipmitool %s: %w: %s", b.IPMI, strings.Join(command, " "), err, printable(string(out)))
		}
		return string(out), nil
	}
	if _, err := run("chassis", "bootdev", "pxe"); err != nil {
		return err
	}
	power, err := run("chassis", "power", "status")
	if err != nil {
		return err
	}
	how := "cycle"
	if strings.Contains(strings.ToLower(power), "is off") {
		how = "on"
	}
	_, err = run("chassis", "power", how)
	return err
}
