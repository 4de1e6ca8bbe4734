package qemu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// Firmware is what a machine starts with.
type Firmware string

// The kinds of firmware.
const (
	BIOS      Firmware = "bios"       // SeaBIOS and the card's ROM, which is an iPXE of 2019
	BIOSPlain Firmware = "bios-plain" // the same, but on the wire its ROM does not say that it is iPXE: see plainROM
	UEFIPXE   Firmware = "uefi-pxe"   // OVMF, network boot by PXE
	UEFIHTTP  Firmware = "uefi-http"  // OVMF, network boot by HTTP
	UEFIROM   Firmware = "uefi-rom"   // OVMF and the card's ROM, which is an iPXE of 2019

	UEFIARM64  Firmware = "uefi-arm64"  // the OVMF of 64-bit Arm, network boot by PXE
	UBootARM64 Firmware = "uboot-arm64" // U-Boot, as boards with a 64-bit Arm have it; it brings a UEFI of its own
	UEFISecure Firmware = "uefi-secure" // OVMF that enforces Secure Boot with Microsoft's keys, network boot by PXE
)

// A Config describes a machine. Bridge, MAC and Firmware are required.
type Config struct {
	Bridge    string // of the test's namespace
	MAC       string
	Firmware  Firmware
	Disk      string   // image of the only disk, /dev/vda; empty: no disk
	DiskFirst bool     // boot the disk before the network; an empty disk falls through
	MemoryMiB int      // 512 by default
	IdleCard  bool     // another NIC comes first, with a link to nowhere
	Args      []string // more for QEMU's command line
}

// Needs returns what Start needs, for netns.Need.
func Needs() []string { return []string{"root", "qemu-system-x86_64", "qemu-img", "ip"} }

const (
	ovmfCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"

	arm64Code = "/usr/share/AAVMF/AAVMF_CODE.fd"
	arm64Vars = "/usr/share/AAVMF/AAVMF_VARS.fd"

	secureCode = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd"
	secureVars = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd" // Microsoft's keys enrolled
)

// UBoot is the file that UBootARM64 needs.
const UBoot = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"

// A Line is a line of the console.
type Line struct {
	At   time.Duration // since the machine was started
	Text string        // without control characters
}

// A Machine is one that runs, or ran.
type Machine struct {
	cfg     Config
	dir     string
	cmd     *exec.Cmd
	started time.Time
	exited  chan struct{} // closed when the process has ended and its console is read to the end

	mu    sync.Mutex
	lines []Line
	grown chan struct{} // closed and renewed with every line
	read  int           // lines that Await has passed
}

// serial makes names of tap devices unique within the test's namespace.
var serial atomic.Uint32

// NewDisk makes an empty disk image that is removed with the test.
func NewDisk(t testing.TB, bytes int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	netns.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", path, fmt.Sprint(bytes))
	return path
}

// Start starts a machine and returns at once. The machine is stopped with the test at the latest.
func Start(t testing.TB, cfg Config) *Machine {
	t.Helper()
	netns.Need(t, Needs()...)
	dir, err := os.MkdirTemp("", "qemu") // not t.TempDir: its name may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &Machine{cfg: cfg, dir: dir, exited: make(chan struct{}), grown: make(chan struct{})}
	args := m.args(t)
	m.cmd = exec.Command(cfg.Firmware.emulator(), args...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	console, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Stdout, m.cmd.Stderr = w, w
	m.started = time.Now()
	err = m.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatalf("start qemu: %v", err)
	}
	go m.watch(console)
	t.Cleanup(func() { m.cleanup(t) })
	return m
}

// emulator returns the QEMU that has such firmware.
func (f Firmware) emulator() string {
	if f == UEFIARM64 || f == UBootARM64 {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// args returns QEMU's command line, and makes what it refers to.
func (m *Machine) args(t testing.TB) []string {
	cfg := m.cfg
	memory := cfg.MemoryMiB
	if memory == 0 {
		memory = 512
	}
	netFirst, diskOrder := 1, 2
	if cfg.DiskFirst {
		netFirst, diskOrder = 2, 1
	}
	card := fmt.Sprintf("virtio-net-pci,netdev=n0,mac=%s,bootindex=%d", cfg.MAC, netFirst)
	args := []string{
		"-accel", "tcg", "-m", fmt.Sprint(memory), "-nodefaults", "-display", "none",
		"-serial", "stdio", "-qmp", "unix:" + m.socket() + ",server=on,wait=off",
		"-device", "virtio-rng-pci",
	}
	switch cfg.Firmware {
	case BIOS, BIOSPlain:
		args = append(args, "-machine", "q35,graphics=off") // SeaBIOS and iPXE use the serial line then
	case UEFIPXE, UEFIHTTP, UEFIROM:
		if cfg.Firmware != UEFIROM {
			card += ",romfile=" // OVMF's own driver and PXE client, not iPXE's
		}
		args = append(args, "-machine", "q35")
		args = append(args, m.ovmf(t, ovmfCode, ovmfVars)...)
	case UEFIARM64:
		card += ",romfile="
		args = append(args, "-machine", "virt", "-cpu", "cortex-a57")
		args = append(args, m.ovmf(t, arm64Code, arm64Vars)...)
	case UBootARM64:
		card += ",romfile="
		args = append(args, "-machine", "virt", "-cpu", "cortex-a57", "-bios", UBoot)
	case UEFISecure:
		card += ",romfile="
		// Variables can be written from system management mode alone, else a guest could switch Secure Boot off.
		args = append(args, "-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on")
		args = append(args, m.ovmf(t, secureCode, secureVars)...)
	default:
		t.Fatalf("qemu: no firmware %q", cfg.Firmware)
	}
	if cfg.IdleCard {
		args = append(args, "-netdev", "hubport,hubid=1,id=idle", "-device", "virtio-net-pci,netdev=idle,mac=52:54:00:ff:ff:01,romfile=")
	}
	args = append(args, "-netdev", m.netdev(t), "-device", card)
	if cfg.Disk != "" {
		args = append(args, "-drive", "if=none,id=d0,cache=unsafe,format="+imageFormat(cfg.Disk)+",file="+strings.ReplaceAll(cfg.Disk, ",", ",,"),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=d0,bootindex=%d", diskOrder))
	}
	return append(args, cfg.Args...)
}

// ovmf returns the arguments for UEFI. The boot client that is not wanted is switched off: OVMF would try PXE for two minutes before HTTP.
func (m *Machine) ovmf(t testing.TB, code, template string) []string {
	vars := filepath.Join(m.dir, "vars.fd")
	body, err := os.ReadFile(template)
	if err != nil {
		t.Fatalf("package ovmf: %v", err)
	}
	if err := os.WriteFile(vars, body, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + code,
		"-drive", "if=pflash,format=raw,unit=1,file=" + vars,
		"-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
	}
	if m.cfg.Firmware == UEFIHTTP {
		args = append(args, "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n")
	}
	return args
}

// netdev joins the machine to the bridge and returns QEMU's -netdev for it.
func (m *Machine) netdev(t testing.TB) string {
	if m.cfg.Firmware == BIOSPlain {
		return startPlainROM(t, m.cfg.Bridge)
	}
	tap := fmt.Sprintf("tap%d", serial.Add(1))
	netns.Run(t, "ip", "tuntap", "add", tap, "mode", "tap")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", tap).Run() })
	netns.Run(t, "ip", "link", "set", tap, "master", m.cfg.Bridge, "up")
	return "tap,id=n0,ifname=" + tap + ",script=no,downscript=no"
}

func (m *Machine) socket() string { return filepath.Join(m.dir, "qmp") }

// watch reads the console until the process ends.
func (m *Machine) watch(console io.ReadCloser) {
	defer close(m.exited)
	r := bufio.NewReader(console)
	for {
		text, err := r.ReadString('\n')
		if text = plain(text); text != "" {
			m.add(Line{At: time.Since(m.started), Text: text})
		}
		if err != nil {
			break
		}
	}
	console.Close()
	_ = m.cmd.Wait() // its exit code means nothing: it is killed, or powers off
}

func (m *Machine) add(l Line) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, l)
	close(m.grown)
	m.grown = make(chan struct{})
}

var escapes = regexp.MustCompile(`\x1b(\[[0-9;?=]*[A-Za-z]|[()][A-Z0-9]|[=>c])|[\x00-\x08\x0b-\x1f\x7f]`)

// plain returns a line without escape sequences and control characters.
func plain(s string) string { return strings.TrimSpace(escapes.ReplaceAllString(s, "")) }

// Await waits for a line that contains want, beginning after the line that the last call returned, and returns it. Without
// one it fails the test after within, or as soon as the machine has stopped.
func (m *Machine) Await(t testing.TB, within time.Duration, want string) Line {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	stopped := false
	for {
		line, grown, ok := m.next(want)
		if ok {
			return line
		}
		if stopped {
			t.Fatalf("the machine stopped without saying %q", want)
		}
		select {
		case <-grown:
		case <-m.exited:
			stopped = true // look once more: the last lines may have come between
		case <-deadline.C:
			t.Fatalf("the machine did not say %q within %v", want, within)
		}
	}
}

func (m *Machine) next(want string) (Line, <-chan struct{}, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := m.read; i < len(m.lines); i++ {
		if strings.Contains(m.lines[i].Text, want) {
			m.read = i + 1
			return m.lines[i], nil, true
		}
	}
	return Line{}, m.grown, false
}

// Lines returns all that the console has shown so far.
func (m *Machine) Lines() []Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Line(nil), m.lines...)
}

// Said returns how many lines contain want.
func (m *Machine) Said(want string) int {
	n := 0
	for _, l := range m.Lines() {
		if strings.Contains(l.Text, want) {
			n++
		}
	}
	return n
}

// LastSaid returns when the last line so far that contains want was shown; zero if none was.
func (m *Machine) LastSaid(want string) (at time.Time) {
	for _, l := range m.Lines() {
		if strings.Contains(l.Text, want) {
			at = m.started.Add(l.At)
		}
	}
	return at
}

// Off reports whether the machine has powered off.
func (m *Machine) Off() bool {
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

// Kill stops the machine as a power cut does, and waits until the process has ended.
func (m *Machine) Kill() {
	_ = m.cmd.Process.Kill()
	<-m.exited
}

// consoleTail is how many lines a failed test shows.
const consoleTail = 30

func (m *Machine) cleanup(t testing.TB) {
	m.Kill()
	lines := m.Lines()
	if dir := os.Getenv("BOOTLAB_SERIAL_DIR"); dir != "" {
		saveConsole(t, filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+"-"+strings.ReplaceAll(m.cfg.MAC, ":", "")+".log"), lines)
	}
	if !t.Failed() {
		return
	}
	var b strings.Builder
	for _, l := range lines[max(0, len(lines)-consoleTail):] {
		fmt.Fprintf(&b, "%7.2fs %s\n", l.At.Seconds(), l.Text)
	}
	t.Logf("console of %s (%s), the end:\n%s", m.cfg.MAC, m.cfg.Firmware, b.String())
}

func saveConsole(t testing.TB, path string, lines []Line) {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%7.2fs %s\n", l.At.Seconds(), l.Text)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Logf("save console: %v", err)
	}
}

// imageFormat tells a disk image's format by its name.
func imageFormat(path string) string {
	if filepath.Ext(path) == ".qcow2" {
		return "qcow2"
	}
	return "raw"
}
