//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// startSSH runs an SSH server until the test ends, and returns its port and a key of root.
func startSSH(t *testing.T) (port int, key string) {
	t.Helper()
	netns.Need(t, "root", "/usr/sbin/sshd", "ssh", "ssh-keygen", "nc")
	dir := t.TempDir()
	key = filepath.Join(dir, "key")
	netns.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	spare, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	port = spare.Addr().(*net.TCPAddr).Port
	check(t, spare.Close())
	config := filepath.Join(dir, "sshd_config")
	check(t, os.WriteFile(config, []byte(strings.NewReplacer("PORT", fmt.Sprint(port), "DIR", dir).Replace(`ListenAddress 127.0.0.1:PORT
HostKey DIR/key
AuthorizedKeysFile DIR/key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
`)), 0o600))
	check(t, os.MkdirAll("/run/sshd", 0o755))
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config)
	var log bytes.Buffer
	cmd.Stderr = &log
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd\n%s", log.String())
		}
	})
	netns.WaitFor(t, "sshd", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return port, key
}

// TestLibvirtBySSH creates, starts and deletes a machine on a libvirtd that is reached by SSH, and ends its connection in between.
func TestLibvirtBySSH(t *testing.T) {
	port, key := startSSH(t)
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.138.0.1/24")
	_, socket, _ := strings.Cut(d.URI, "socket=")
	b := newTestServer(t, oneHost(on, func(h *lab.Host) {
		hv := h.VM.Hypervisor
		hv.URI = fmt.Sprintf("qemu+ssh://root@127.0.0.1:%d/system?socket=%s&keyfile=%s&no_verify=1&proxy=netcat", port, socket, key)
		hv.Bridges[0].Bridge = seg.Bridge
	}), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	check(t, b.Start(t.Context(), "master-0"))
	wantState(t, b, virt.StateRunning)
	for _, pid := range children(t) { // with its ssh
		netns.Run(t, "kill", "-9", fmt.Sprint(pid))
	}
	waitState(t, b, virt.StateRunning)
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	wantState(t, b, virt.StateAbsent)
}
