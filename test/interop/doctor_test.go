package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDoctorOfAUser: a user who may not ask the daemon gets no false failures, but what cannot be seen and why.
func TestDoctorOfAUser(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.110.77")
	l.user = "root" // so that nobody may not open its socket
	l.more = "hypervisors: {own: {uri: \"qemu:///system?socket=" + filepath.Join(l.dir, "private/libvirt") + "\"}}\n"
	if err := os.Mkdir(filepath.Join(l.dir, "private"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write()
	d := start(t, l)
	program := filepath.Join(l.dir, "bootlab")
	if out, err := exec.Command("cp", os.Getenv(binaryVar), program).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	cmd := exec.Command(program, "doctor", "--lab", d.path())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	b, err := cmd.CombinedOutput()
	out := strings.Join(strings.Fields(string(b)), " ")
	if err != nil || strings.Contains(out, "fail ") {
		t.Errorf("failures: %v\n%s", err, b)
	}
	for _, want := range []string{
		"warn daemon daemon cannot be asked: open " + l.dir + "/run/admin.sock: permission denied -> run as root or as a member of the socket's group",
		"warn ports all were not tried: the daemon may have them -> run bootlab doctor as root",
		"warn hypervisors own was not tried: this user may not open " + l.dir + "/private/libvirt -> run bootlab doctor as root",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, b)
		}
	}
}
