//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// bootableISO returns an ISO image (El Torito, no emulation) whose program writes text to the first serial port and resets the machine.
func bootableISO(text string) []byte {
	const sector = 2048
	iso := make([]byte, 24*sector)
	at := func(n int) []byte { return iso[n*sector:] }
	copy(at(16), "\x01CD001\x01")
	binary.LittleEndian.PutUint32(at(16)[80:], 24) // sectors of the volume
	binary.LittleEndian.PutUint16(at(16)[128:], sector)
	copy(at(17), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(17)[0x47:], 19)
	copy(at(18), "\xffCD001\x01")
	catalog := at(19)
	copy(catalog, "\x01")
	catalog[0x1e], catalog[0x1f] = 0x55, 0xaa
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += binary.LittleEndian.Uint16(catalog[i:])
	}
	binary.LittleEndian.PutUint16(catalog[0x1c:], -sum)
	catalog[32] = 0x88 // bootable
	binary.LittleEndian.PutUint16(catalog[38:], 4)
	binary.LittleEndian.PutUint32(catalog[40:], 20)
	// It waits for a byte of readSerial: what it writes before that reads is lost.
	program := []byte{0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb} // mov dx, 0x3fd; again: in al, dx; test al, 1; jz again
	program = append(program, 0xba, 0xf8, 0x03)                       // mov dx, 0x3f8
	for _, c := range []byte(text) {
		program = append(program, 0xb0, c, 0xee) // mov al, c; out dx, al
	}
	program = append(program, 0xb0, 0xfe, 0xe6, 0x64, 0xf4, 0xeb, 0xfd) // mov al, 0xfe; out 0x64, al: reset; hlt
	copy(at(20), program)
	return iso
}

// onBridge is a lab of one machine on a real libvirtd.
func onBridge(d *libvirtd.Daemon, bridge string, change ...func(*lab.Host)) *lab.Lab {
	return oneHost(append([]func(*lab.Host){func(h *lab.Host) {
		*h.VM.Hypervisor = lab.Hypervisor{Name: "local", URI: d.URI, Pool: libvirtd.Pool, DomainType: "qemu",
			Bridges: []lab.Attachment{{Network: h.Network, Bridge: bridge}}}
		h.VM.Memory, h.VM.CPUs, h.VM.Disks = gib/4, 1, []lab.Disk{{Size: gib}}
	}}, change...)...)
}

// serial reads the serial console of a machine on a real libvirtd, and sends it dots, until the test ends.
type serial struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func readSerial(t *testing.T, d *libvirtd.Daemon, host string) *serial {
	t.Helper()
	pty := strings.TrimSpace(netns.Run(t, "virsh", "-c", d.URI, "ttyconsole", host))
	f, err := os.OpenFile(pty, os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	netns.Run(t, "stty", "-F", pty, "raw", "-echo")
	s := &serial{}
	go func() { _, _ = io.Copy(s, f) }()
	go func() {
		for {
			if _, err := f.WriteString("."); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return s
}

// Write implements io.Writer.
func (s *serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *serial) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), text)
}

// TestAMachineBootsFromItsCDOnce: the system on the medium resets the machine, which boots from the network then, as the lab file
// says. The next start is without another boot device, and its definition was never changed.
func TestAMachineBootsFromItsCDOnce(t *testing.T) {
	netns.Need(t, append(libvirtd.Needs(), "tcpdump", "stty")...)
	ctx := t.Context()
	seg := netns.NewSegment(t, "10.123.1.1/24")
	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: t.TempDir()})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	l := onBridge(d, seg.Bridge)
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)
	seen := discovers(t, seg.Bridge)
	check(t, b.Create(ctx, "master-0"))
	plain := netns.Run(t, "virsh", "-c", d.URI, "dumpxml", "--inactive", "master-0")
	iso := bootableISO("bootlab CD\r\n")
	check(t, b.InsertMedia(ctx, "master-0", "http://x/boot.iso", bytes.NewReader(iso), uint64(len(iso))))
	check(t, b.SetBoot(ctx, "master-0", virt.BootCD, virt.NextStart))
	check(t, b.Start(ctx, "master-0"))
	console := readSerial(t, d, "master-0")
	waitDiscovers(t, seen, l.Hosts)
	netns.WaitFor(t, "what the CD has written", func() bool { return console.count("bootlab CD") > 0 })
	if n := console.count("bootlab CD"); n != 1 {
		t.Errorf("it has booted from its CD %d times before the network, want once", n)
	}
	if now := netns.Run(t, "virsh", "-c", d.URI, "dumpxml", "--inactive", "master-0"); now != plain {
		t.Errorf("its definition has changed:\n%s", now)
	}
	if n := b.NextBoot("master-0"); n.Device != virt.BootDefault || n.Media.URL == "" {
		t.Errorf("next boot afterwards: %+v", n)
	}
	plan, err := b.Plan(ctx, nil)
	check(t, err)
	if len(plan) != 1 || plan[0].Condition != virt.ConditionOK {
		t.Errorf("plan: %+v", plan)
	}
	check(t, b.Restart(ctx, "master-0"))
	console = readSerial(t, d, "master-0")
	waitDiscovers(t, seen, l.Hosts)
	live := netns.Run(t, "virsh", "-c", d.URI, "dumpxml", "master-0")
	if console.count("bootlab CD") != 0 || !regexp.MustCompile(`device='cdrom'`).MatchString(live) {
		t.Errorf("the start after it: it booted from its CD, or has none:\n%s", live)
	}
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	if left, err := exec.Command("ls", d.Images).Output(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %s %v", left, err)
	}
}
