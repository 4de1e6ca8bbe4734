// Package sshd runs an SSH server on loopback, for tests.
package sshd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

const config = `ListenAddress ADDRESS
HostKey DIR/key
AuthorizedKeysFile DIR/key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
`

// Start runs a server until the test ends, and returns its address and a key with which root logs in.
func Start(t testing.TB) (address, key string) {
	t.Helper()
	netns.Need(t, "root", "/usr/sbin/sshd", "ssh", "ssh-keygen", "nc")
	dir := t.TempDir()
	key = filepath.Join(dir, "key")
	netns.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	address = netns.SparePort(t)
	file := filepath.Join(dir, "sshd_config")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("ADDRESS", address, "DIR", dir).Replace(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", file)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd\n%s", log.String())
		}
	})
	netns.WaitFor(t, "sshd", func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return address, key
}

// URI returns the URI of a libvirtd at the end of the SSH connection, whose local URI names its socket.
func URI(address, key, local string) string {
	_, socket, _ := strings.Cut(local, "socket=")
	return fmt.Sprintf("qemu+ssh://root@%s/system?socket=%s&keyfile=%s&no_verify=1&proxy=netcat", address, socket, key)
}
