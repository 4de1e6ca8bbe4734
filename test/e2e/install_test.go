package e2e

import (
	_ "embed"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// preseed installs a minimal Debian without a question.
const preseed = `d-i debian-installer/locale string en_US.UTF-8
d-i keyboard-configuration/xkb-keymap select us
d-i mirror/country string manual
d-i mirror/http/hostname string {{(.Mirror "debian").Host}}
d-i mirror/http/directory string {{(.Mirror "debian").Path}}
d-i mirror/http/proxy string
d-i clock-setup/utc boolean true
d-i clock-setup/ntp boolean false
d-i time/zone string Etc/UTC
d-i passwd/make-user boolean false
d-i passwd/root-password password {{.Host.Vars.password}}
d-i passwd/root-password-again password {{.Host.Vars.password}}
d-i partman-auto/disk string {{.Profile.InstallTo}}
d-i partman-auto/method string regular
d-i partman-auto/expert_recipe string root :: 1000 10000 -1 ext4 $primary{ } $bootable{ } method{ format } format{ } use_filesystem{ } filesystem{ ext4 } mountpoint{ / } .
d-i partman-basicfilesystems/no_swap boolean false
d-i partman-partitioning/confirm_write_new_label boolean true
d-i partman/choose_partition select finish
d-i partman/confirm boolean true
d-i partman/confirm_nooverwrite boolean true
d-i base-installer/install-recommends boolean false
d-i base-installer/kernel/image string linux-image-cloud-amd64
d-i apt-setup/services-select multiselect
d-i apt-setup/enable-source-repositories boolean false
d-i pkgsel/run_tasksel boolean false
d-i pkgsel/upgrade select none
d-i pkgsel/update-policy select none
d-i grub-installer/bootdev string {{.Profile.InstallTo}}
d-i finish-install/reboot_in_progress note
d-i preseed/late_command string wget -q -O /dev/null {{.DoneURL}}
`

// archiveAddr is the address of Debian's archive, which only the daemon can reach.
const archiveAddr = "127.0.0.1:3142"

// installLimit bounds a whole install in emulation.
const installLimit = 60 * time.Minute

// needArchive skips the test unless make e2e-install runs it.
func needArchive(t *testing.T) {
	t.Helper()
	if os.Getenv(installVar) == "" {
		t.Skip("takes half an hour, and Debian's archive: make e2e-install")
	}
	netns.Need(t, qemu.Needs()...)
}

// preseedLab is debianLab for a whole installation.
func preseedLab() string {
	return strings.NewReplacer(
		"profile: bookworm}", "profile: bookworm, vars: {password: sesame}}",
		"[console=ttyS0, DEBIAN_FRONTEND=text, no_timer_check]", "[DEBIAN_FRONTEND=text, no_timer_check, ---, console=ttyS0]",
	).Replace(debianLab) + mirrorLines
}

const mirrorLines = "mirrors: {debian: \"http://" + archiveAddr + "\"}\n"

// debootstrapLab boots the installer of buildInstaller.
var debootstrapLab = strings.NewReplacer("    os: debian\n", "", "images/linux", "images/vmlinuz", "preseed.cfg", "install.sh",
	"[DEBIAN_FRONTEND=text, no_timer_check, ---, console=ttyS0]", "[console=ttyS0, no_timer_check, \"config={{.ConfigURL}}\"]").Replace(preseedLab())

//go:embed testdata/install.sh
var installScript string

// TestPreseedInstall: Debian's own installer installs from the archive, through the daemon's cache.
func TestPreseedInstall(t *testing.T) {
	t.Parallel()
	needArchive(t)
	r := newRig(t, preseedLab(), withInstaller(t, map[string]string{"preseed.cfg": preseed}))
	a := newArchive(t, archiveAddr)
	if missing := a.lacks(t, "finish-install", "grub-installer", "partman-base", "user-setup-udeb"); missing != "" {
		t.Skipf("this archive has no %s: Debian's installer cannot install from it", missing)
	}
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, MemoryMiB: 1024, Disk: qemu.NewDisk(t, 4<<30)})
	r.awaitDebian(t, m, a)
}

// TestDebootstrapInstall installs Debian from the archive, through the daemon's cache, and boots it from its disk. Then the archive is cut
// off, and the machine installs itself once more, from the cache.
func TestDebootstrapInstall(t *testing.T) {
	t.Parallel()
	needArchive(t)
	files := map[string]string{"install.sh": installScript}
	for _, name := range []string{"vmlinuz", "initrd.gz"} {
		body, err := os.ReadFile(installerFile(name))
		if err != nil {
			t.Fatal(err)
		}
		files["images/"+name] = string(body)
	}
	r := newRig(t, debootstrapLab, files)
	a := newArchive(t, archiveAddr)
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, MemoryMiB: 2048, Disk: qemu.NewDisk(t, 4<<30)})
	r.awaitDebian(t, m, a)

	a.cut()
	r.bootlab(t, "install", "node", "--yes")
	m.Reset(t)
	r.awaitDebian(t, m, a)
}

// awaitDebian waits until a machine has installed itself and is up from its disk.
func (r *rig) awaitDebian(t *testing.T, m *qemu.Machine, a *archive) {
	t.Helper()
	began := time.Now()
	before := r.count(t, "node", event.InstallDone)
	r.watchInstall(t, m, before+1)
	t.Logf("installed after %v; %s", time.Since(began).Round(time.Second), a)
	m.Await(t, installerPatience, "Debian GNU/Linux 12 node ttyS0")
	t.Logf("up from its disk after %v", time.Since(began).Round(time.Second))
	if h := r.host(t, "node"); h.Install != "installed" {
		t.Errorf("install state %q, want installed", h.Install)
	}
	r.wantKinds(t, "node", event.ScriptServed, event.ConfigServed, event.InstallStarted, event.InstallDone, event.InstallLocalBoot, event.DHCPAck)
	if leases := ask[[]api.Lease](t, r, "leases"); len(leases) != 1 {
		t.Errorf("leases: %+v; want one", leases)
	}
}

// watchInstall waits until the machine has been marked installed that often, and logs the console. It fails the test as soon as the
// installer asks a question or stops.
func (r *rig) watchInstall(t *testing.T, m *qemu.Machine, times int) {
	t.Helper()
	const question, failed = "Prompt: '?' for help", "INSTALLER failed"
	printed := len(m.Lines())
	for deadline := time.Now().Add(installLimit); r.count(t, "node", event.InstallDone) < times; time.Sleep(2 * time.Second) {
		lines := m.Lines()
		for _, l := range lines[printed:] {
			if !strings.HasPrefix(l.Text, "[") {
				t.Logf("%6.1fs %.150s", l.At.Seconds(), l.Text)
			}
		}
		printed = len(lines)
		switch {
		case m.Said(question) > 0:
			t.Fatal("the installer asks a question")
		case m.Said(failed) > 0, m.Off():
			t.Fatal("the installer has failed")
		case time.Now().After(deadline):
			t.Fatalf("not installed within %v", installLimit)
		}
	}
}
