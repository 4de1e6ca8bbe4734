package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/sshd"
)

// TestHypervisorBySSH: a confined daemon, as root and as another user, manages a machine by SSH.
func TestHypervisorBySSH(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"root", "nobody"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, libvirtd.Needs()...)
			netns.Enter(t)
			libvirt := startLibvirt(t)
			address, key := sshd.Start(t)
			if user == "nobody" {
				key = forNobody(t, key)
			}
			r := newRigHere(t, strings.Replace(vmLab(sshd.URI(address, key, libvirt.URI), "bios"), "user: nobody", "user: "+user, 1), bootFiles)
			if text := string(r.bootlab(t, "status")); !strings.Contains(text, "confined: files Landlock") || !strings.Contains(text, "system calls seccomp") {
				netns.Absent(t, "Landlock and seccomp", "this kernel lacks a part of the confinement")
			}
			r.bootlab(t, "vm", "create", "node")
			r.untilVM(t, "running")
			r.wantKinds(t, "node", event.DHCPAck)
			eventually(t, patience, func() error { // by a connection of its own
				boots := ask[[]api.ConsoleBoot](t, r, "vm", "log", "node", "--list")
				if len(boots) == 0 || boots[0].Bytes == 0 {
					return errors.New("no output of the console is kept")
				}
				return nil
			})
			r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
		})
	}
}

// forNobody copies a key to where the user nobody may read it.
func forNobody(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(shortDir(t), "key")
	put(t, file, text)
	return file
}
