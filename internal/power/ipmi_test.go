package power_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A simulator is OpenIPMI's ipmi_sim: it speaks RMCP+ and runs a program instead of switching power.
type simulator struct{ dir, addr string }

const chassis = `#!/bin/sh
# ADDRESS get|set NAME [VALUE]...
dir=$(dirname "$0")
shift; op=$1; shift
while [ $# -gt 0 ]; do
	if [ "$op" = get ]; then
		case $1 in power) echo "power:$(cat "$dir/power")" ;; *) echo "$1:none" ;; esac
		shift
	else
		echo "$1 $2" >>"$dir/done"
		shift 2
	fi
done
`

const lanConf = `name "sim"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 PORT
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "DIR/chassis 0x20"
  user 2 true "admin" "calvin" admin 10 none md2 md5 straight
`

func simulate(t *testing.T, power string) *simulator {
	t.Helper()
	netns.Need(t, "ipmitool", "ipmi_sim")
	port := strconv.Itoa(netns.FreePort(t))
	s := &simulator{dir: t.TempDir(), addr: net.JoinHostPort("127.0.0.1", port)}
	for name, text := range map[string]string{
		"chassis": chassis, "lan.conf": strings.NewReplacer("DIR", s.dir, "PORT", port).Replace(lanConf), "power": power,
		"sim.emu": "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n",
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("ipmi_sim", "-c", "lan.conf", "-f", "sim.emu", "-s", s.dir)
	cmd.Dir = s.dir
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	stdin, err := cmd.StdinPipe() // it exits at the end of its standard input
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("ipmi_sim:\n%s", log.String())
		}
	})
	s.await(t)
	return s
}

// await waits until the simulator listens. It reads /proc, because binding the port for a test would keep ipmi_sim out.
func (s *simulator) await(t *testing.T) {
	t.Helper()
	listens := fmt.Sprintf("0100007F:%04X 00000000:0000", netip.MustParseAddrPort(s.addr).Port()) // local and remote, as in proc(5)
	netns.WaitFor(t, "ipmi_sim to listen", func() bool {
		table, err := os.ReadFile("/proc/self/net/udp")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(table), listens)
	})
}

func (s *simulator) done(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "done"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}

// TestIPMI runs ipmitool against a simulator that is not ours. After a power cycle the simulator powers on some time later;
// the test does not wait for that. It does not answer ipmitool's first request, so each of its runs takes six seconds.
func TestIPMI(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, power, password string
		want                  []string
		err                   string
	}{
		{"on", "1", "calvin", []string{"boot pxe", "power 0"}, ""},
		{"off", "0", "calvin", []string{"boot pxe", "power 1"}, ""},
		{"wrong password", "1", "hobbes", nil, "ipmitool chassis bootdev pxe: exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := simulate(t, tt.power)
			err := netBoot(t.Context(), &lab.BMC{IPMI: s.addr, Username: "admin", PasswordFile: file(t, tt.password+"\n")})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(strings.Join(tt.want, ", "), strings.Join(s.done(t), ", ")); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

// TestIPMIPower switches power with ipmitool, which changes nothing about the next boot.
func TestIPMIPower(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		power  string
		action power.Action
		state  power.State
		want   string
	}{
		{"1", power.Status, power.StateOn, ""},
		{"1", power.Off, power.StateOff, "power 0"},
		{"0", power.On, power.StateOn, "power 1"},
		{"0", power.Reset, power.StateOn, "power 1"},
	} {
		t.Run(string(tt.action)+tt.power, func(t *testing.T) {
			t.Parallel()
			s := simulate(t, tt.power)
			state, err := power.Do(t.Context(), &lab.BMC{IPMI: s.addr, Username: "admin", PasswordFile: file(t, "calvin\n")}, tt.action)
			if err != nil || state != tt.state || strings.Join(s.done(t), ", ") != tt.want {
				t.Errorf("%q, %v, done %q; want %q, done %q", state, err, s.done(t), tt.state, tt.want)
			}
		})
	}
	dead, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if _, err := power.Do(t.Context(), &lab.BMC{IPMI: dead.LocalAddr().String(), Username: "admin", PasswordFile: file(t, "x")}, power.Status); err == nil || !strings.Contains(err.Error(), dead.LocalAddr().String()) {
		t.Errorf("of a controller that is dead: %v", err)
	}
}

// TestNoIPMItool: without the program the error says what to install.
func TestNoIPMItool(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := netBoot(t.Context(), &lab.BMC{IPMI: "192.0.2.1"})
	if err == nil || !strings.Contains(fmt.Sprint(err), "apt install ipmitool") {
		t.Errorf("error %v", err)
	}
}

// TestIPMIBoot sets boot devices with ipmitool. efiboot is a flag of the request that the simulator takes and does not show, so a
// script in ipmitool's place shows the command.
func TestIPMIBoot(t *testing.T) {
	s := simulate(t, "1")
	b := &lab.BMC{IPMI: s.addr, Username: "admin", PasswordFile: file(t, "calvin\n"), Firmware: lab.FirmwareUEFI}
	if err := power.Boot(t.Context(), b, power.DeviceCD, power.Always); err != nil || strings.Join(s.done(t), ", ") != "boot cdrom" {
		t.Errorf("boot from CD: %v, done %q", err, s.done(t))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ipmitool"), []byte("#!/bin/sh\necho \"$@\" >>"+dir+"/log\necho Chassis Power is on\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, set := range []struct {
		firmware lab.Firmware
		device   power.Device
		how      power.How
		want     string
	}{
		{lab.FirmwareUEFI, power.DeviceNetwork, power.Once, "chassis bootdev pxe options=efiboot"},
		{lab.FirmwareUEFI, power.DeviceDisk, power.Always, "chassis bootdev disk options=persistent,efiboot"},
		{"", power.DeviceDefault, power.Always, "chassis bootdev none"},
	} {
		b.Firmware = set.firmware
		if err := power.Boot(t.Context(), b, set.device, set.how); err != nil {
			t.Error(err)
		}
		if log, _ := os.ReadFile(filepath.Join(dir, "log")); !strings.HasSuffix(string(log), set.want+"\n") {
			t.Errorf("commands %q, want one that ends in %q", log, set.want)
		}
	}
	b.Firmware = lab.FirmwareUEFI
	if _, err := power.Do(t.Context(), b, power.NetBoot); err != nil {
		t.Error(err)
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "log")); !strings.Contains(string(log), "bootdev pxe options=efiboot\n") {
		t.Errorf("commands of a cycle: %s", log)
	}
}
