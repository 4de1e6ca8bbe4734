package daemon_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/test/support/faultfs"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDoctorOfAHangingState: a state folder that does not answer is a finding, and holds up nothing that doctor says of the rest.
func TestDoctorOfAHangingState(t *testing.T) {
	netns.Need(t, "root", "ip")
	for _, tt := range []struct {
		name string
		hang func(t *testing.T, state string) (end func())
	}{
		{"nothing is answered", hangs},
		{"writes are frozen", frozen},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, "10.55.9.1")
			state := r.withState()
			end := tt.hang(t, state)
			defer end()
			bounded(t, "doctor", func() {
				all := r.examined()
				if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
					return f.Subject == state && f.Level == doctor.Fail && strings.Contains(f.Text, "does not answer") && f.Fix != ""
				}) {
					t.Errorf("no finding says that %s does not answer: %+v", state, all)
				}
				if !slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Check == "clock" }) {
					t.Errorf("nothing is said of the clock: %+v", all)
				}
			})
		})
	}
}

// hangs mounts a file system on dir that answers nothing until the returned function is called.
func hangs(t *testing.T, dir string) (end func()) {
	disk, answer := faultfs.Mount(t, dir), make(chan struct{})
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno { <-answer; return 0 })
	return func() { close(answer) }
}

// frozen mounts a disk on dir whose writes wait until the returned function is called.
func frozen(t *testing.T, dir string) (end func()) {
	netns.Need(t, "mkfs.ext4", "mount", "fsfreeze")
	image := filepath.Join(t.TempDir(), "disk")
	netns.Run(t, "truncate", "-s", "16M", image)
	netns.Run(t, "mkfs.ext4", "-q", image)
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		netns.Absent(t, "loop devices", string(out))
	}
	t.Cleanup(func() { _ = exec.Command("umount", "--lazy", dir).Run() })
	netns.Run(t, "fsfreeze", "--freeze", dir)
	return func() { _ = exec.Command("fsfreeze", "--unfreeze", dir).Run() }
}
