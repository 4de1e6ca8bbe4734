package portowner_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/socket/portowner"
	"github.com/bootlab/bootlab/test/support/netns"
)

const childMode = "BOOTLAB_TEST_PORTOWNER_CHILD"

// TestMain is, in a child, a process that holds one port until its input ends.
func TestMain(m *testing.M) {
	network := os.Getenv(childMode)
	switch network {
	case "":
		os.Exit(m.Run())
	case "explain without capabilities":
		runtime.LockOSThread()
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0]); err != nil {
			panic(err)
		}
		fallthrough
	case "explain":
		fmt.Print(portowner.Explain(syscall.EADDRINUSE, "tcp", os.Args[1], ""))
		return
	}
	var held fmt.Stringer
	switch l, err := listen(network, os.Args[1]); {
	case err != nil:
		panic(err)
	default:
		held = l
	}
	fmt.Println(held)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// listen holds a port and returns its address.
func listen(network, address string) (fmt.Stringer, error) {
	if strings.HasPrefix(network, "udp") {
		pc, err := net.ListenPacket(network, address)
		if err != nil {
			return nil, err
		}
		return pc.LocalAddr(), nil
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return l.Addr(), nil
}

// holder starts a process of that name which holds a port, and returns its PID and the port.
func holder(t *testing.T, name, network, address string, args ...string) (pid int, port string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{address}, args...)...)
	cmd.Env = append(os.Environ(), childMode+"="+network)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, port, err = net.SplitHostPort(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, port
}

func TestExplainNamesTheProcess(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, network, held, wanted, remedy, argument string }{
		{"systemd-resolve", "udp", "127.0.0.1:0", ":%s", "DNSStubListener=no", ""},
		{"dnsmasq", "tcp", ":0", "127.0.0.1:%s", "docs/dhcp-migration.md", ""},
		{"dnsmasq", "udp", "127.0.0.1:0", "127.0.0.1:%s", "remove <dns> and <dhcp> from that network", "--conf-file=/var/lib/libvirt/dnsmasq/default.conf"},
		{"dnsmasq", "udp", "127.0.0.1:0", "127.0.0.1:%s", "set dns=default", "--enable-dbus=org.freedesktop.NetworkManager.dnsmasq"},
		{"dnsmasq", "udp", "127.0.0.1:0", "127.0.0.1:%s", "a network of containers", "--interface=lxdbr0"},
		{"nginx", "tcp", "127.0.0.1:0", "127.0.0.1:%s", ": give it other addresses", ""},
		{"docker-proxy", "tcp", "127.0.0.1:0", "127.0.0.1:%s", "stop the container", ""},
		{"bootlab", "udp4", "0.0.0.0:0", "127.0.0.1:%s", "bootlab is already running: stop it (systemctl stop bootlab, or kill ", ""},
		{"bootlab", "udp4", "0.0.0.0:0", "127.0.0.1:%s", `bootlab is already running with lab file "/etc/other.yaml": stop it`, "--lab=/etc/other.yaml"},
		{"named", "tcp6", "[::1]:0", "[::1]:%s", ": give it other addresses", ""},
		{"inetd", "tcp4", "127.0.0.1:0", "localhost:%s", ": stop that program, or change appliance.http", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pid, port := holder(t, tt.name, tt.network, tt.held, tt.argument)
			address := fmt.Sprintf(tt.wanted, port)
			_, err := listen(tt.network, address)
			if err == nil {
				t.Fatalf("%s is free", address)
			}
			got := portowner.Explain(err, tt.network, address, "appliance.http")
			want := fmt.Sprintf("listen %s %s: address already in use by %s (pid %d)", tt.network, address, tt.name, pid)
			if !strings.HasPrefix(got.Error(), want) || !strings.Contains(got.Error(), tt.remedy) {
				t.Errorf("got  %s\nwant %s … %s", got, want, tt.remedy)
			}
			if !errors.Is(got, syscall.EADDRINUSE) {
				t.Error("errors.Is does not find EADDRINUSE any more")
			}
		})
	}
}

// TestExplainUnseen: a process that may not see the holder, as bootlab's under its unit, and as root without capabilities, says what names it.
func TestExplainUnseen(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	_, port := holder(t, "named", "tcp", "127.0.0.1:0")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "portowner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "bootlab")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	for mode, uid := range map[string]uint32{"explain": 65534, "explain without capabilities": 0} {
		cmd := exec.Command(program, "127.0.0.1:"+port)
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), childMode+"="+mode)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "sudo bootlab doctor names it") {
			t.Errorf("%s as user %d: %s, %v", mode, uid, out, err)
		}
	}
}

func TestHoldersTellsAddressesAndProtocolsApart(t *testing.T) {
	t.Parallel()
	_, port := holder(t, "holder", "tcp4", "127.0.0.1:0")
	tests := []struct {
		network, address string
		want             int
	}{
		{"tcp", "127.0.0.1:" + port, 1},
		{"tcp", ":" + port, 1},
		{"tcp", "127.0.0.2:" + port, 0},
		{"udp", "127.0.0.1:" + port, 0},
		{"tcp", "127.0.0.1:1", 0},
		{"tcp", "no port", 0},
	}
	for _, tt := range tests {
		if got := portowner.Holders(tt.network, tt.address); len(got) != tt.want {
			t.Errorf("%s %s: %v, want %d", tt.network, tt.address, got, tt.want)
		}
	}
}

func TestExplainLeavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	if got := portowner.Explain(os.ErrPermission, "udp", ":53", ""); got != os.ErrPermission {
		t.Errorf("got %v", got)
	}
	err := portowner.Explain(syscall.EADDRINUSE, "tcp", "127.0.0.1:1", "")
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want an honest answer", err)
	}
}
