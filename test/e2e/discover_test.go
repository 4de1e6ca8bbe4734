package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

const unknownMAC = "52:54:00:77:00:99"

// discoverLab is bootLab with a pool in which unknown machines report their hardware.
func discoverLab() string {
	return strings.NewReplacer(
		"clusters:\n", "  discover: {os: discover}\nclusters:\n",
		"    mtu: 1400\n", "    mtu: 1400\n    pools: {guests: {range: 10.77.0.100-10.77.0.110, profile: discover}}\n",
	).Replace(bootLab)
}

// TestDiscover: an unknown machine reports its hardware by the iPXE of its ROM. With the lines of bootlab adopt it becomes a host, and
// installs itself without a reset.
func TestDiscover(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	r := newRig(t, discoverLab(), withGuest(t, bootFiles))
	const uuid = "4c4c4544-004a-3810-804b-b8c04f503533"
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: unknownMAC, Firmware: qemu.BIOS, Disk: qemu.NewDisk(t, 1<<30), Args: []string{
		"-smbios", "type=1,manufacturer=Dell Inc.,product=PowerEdge R640,serial=J8K2P53,uuid=" + uuid,
	}})
	var found api.UnknownMachine
	eventually(t, patience, func() error {
		all := ask[[]api.UnknownMachine](t, r, "hosts", "--unknown")
		i := slices.IndexFunc(all, func(u api.UnknownMachine) bool { return u.MAC.String() == unknownMAC })
		if i < 0 || all[i].First.IsZero() {
			return fmt.Errorf("no report yet: %+v", all)
		}
		found = all[i]
		return nil
	})
	if found.Serial != "J8K2P53" || found.UUID != uuid || found.Manufacturer != "Dell Inc." || found.Product != "PowerEdge R640" || found.Platform != "pcbios" ||
		found.Arch != "i386" || found.Network != "inner" || found.Pool != "guests" || found.Stage != event.StageScript || found.MemoryMiB != 512 || !slices.Equal(found.MACs, []lab.MAC{found.MAC}) {
		t.Errorf("it is reported as %+v", found)
	}
	t.Logf("report: %+v", found)

	// The report survives a kill.
	r.kill(t)
	r.start(t)
	if all := ask[[]api.UnknownMachine](t, r, "hosts", "--unknown"); len(all) != 1 || all[0].Serial != "J8K2P53" {
		t.Errorf("after a kill: %+v", all)
	}

	lines := string(r.bootlab(t, "adopt", unknownMAC, "--profile", "guest"))
	for _, want := range []string{"\n  j8k2p53: # Dell Inc. PowerEdge R640, serial J8K2P53", "    mac: " + unknownMAC + "\n", "    ip: " + found.IP.String() + "\n", "    profile: guest\n"} {
		if !strings.Contains(lines, want) {
			t.Errorf("adopt lacks %q:\n%s", want, lines)
		}
	}
	_, lines, _ = strings.Cut(lines, "hosts:\n")
	lines += "    vars: {word: sesame}\n"
	path := filepath.Join(r.dir, "lab.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, append(text, lines...))
	r.bootlab(t, "reload")
	m.Await(t, patience, "GUEST message j8k2p53-sesame")
	m.Await(t, patience, "GUEST install done")
	if h := r.host(t, "j8k2p53"); h.Install != "installed" {
		t.Errorf("install state %q", h.Install)
	}
	if all := ask[[]api.UnknownMachine](t, r, "hosts", "--unknown"); len(all) != 0 {
		t.Errorf("still unknown: %+v", all)
	}
	r.wantKinds(t, "j8k2p53", event.ScriptServed, event.FileServed, event.InstallStarted, event.InstallDone)
}
