package power_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/test/support/netns"
)

// virtualBMC runs a controller of pyghmi, the library that virtualbmc serves IPMI with.
func virtualBMC(t *testing.T, state string) *simulator {
	t.Helper()
	const python = "/usr/bin/python3" // Debian's, which has Debian's modules
	netns.Need(t, "ipmitool", python, "/usr/lib/python3/dist-packages/pyghmi")
	port := strconv.Itoa(netns.FreePort(t))
	s := &simulator{dir: t.TempDir(), addr: net.JoinHostPort("127.0.0.1", port)}
	if err := os.WriteFile(filepath.Join(s.dir, "power"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/bmc.py", port, s.dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pyghmi:\n%s", log.String())
		}
	})
	s.await(t)
	return s
}

// TestVirtualBMC switches the power of a controller as virtualbmc has it, and sets its boot device. It has no power cycle, so its machine is
// switched off and on.
func TestVirtualBMC(t *testing.T) {
	t.Parallel()
	s := virtualBMC(t, "on")
	b := &lab.BMC{IPMI: s.addr, Username: "admin", PasswordFile: file(t, "calvin\n")}
	for _, step := range []struct {
		action power.Action
		state  power.State
	}{{power.Status, power.StateOn}, {power.Reset, power.StateOn}, {power.Off, power.StateOff}, {power.Status, power.StateOff}, {power.On, power.StateOn}} {
		if state, err := power.Do(t.Context(), b, step.action); err != nil || state != step.state {
			t.Errorf("%s: %q, %v, want %q", step.action, state, err, step.state)
		}
	}
	if err := power.Boot(t.Context(), b, power.DeviceNetwork, power.Once); err != nil {
		t.Error(err)
	}
	if got := strings.Join(s.done(t), ", "); got != "off, on, off, on, boot network" {
		t.Errorf("done %q", got)
	}
}
