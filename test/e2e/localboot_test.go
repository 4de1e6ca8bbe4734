package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// TestLocalBoot lets an installed machine, the network first in its boot order, come up from its disk in each way that a
// lab file can ask for. That a UEFI machine does is TestInstall's.
func TestLocalBoot(t *testing.T) {
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, bootLab, withGuest(t, bootFiles))
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, Disk: qemu.NewDisk(t, 1<<30)})
	m.Await(t, patience, "GUEST install done")
	awaitInstalled(t, m) // by auto
	path := filepath.Join(r.dir, "lab.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		how    string
		script bool // it fetched one
	}{
		{"none", false},
		{"exit", true},
		{"sanboot", true},
	} {
		put(t, path, []byte(strings.Replace(string(text), "vars: {word: sesame}", "local_boot: "+tt.how+", vars: {word: sesame}", 1)))
		r.bootlab(t, "reload")
		before := m.Said("bootlab: node is installed")
		m.Reset(t)
		awaitInstalled(t, m)
		if told := m.Said("bootlab: node is installed") > before; told != tt.script {
			t.Errorf("local_boot: %s: its script ran: %v", tt.how, told)
		}
	}
	if n := m.Said("GUEST writing"); n != 1 {
		t.Errorf("%d installations, want 1", n)
	}
}
