package segment

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func mac(t testing.TB, s string) lab.MAC {
	t.Helper()
	m, err := lab.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// open listens on an interface until the test ends.
func open(t testing.TB, iface string) *Socket {
	t.Helper()
	s, err := Listen(iface)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// background runs f until the test ends, and waits for it.
func background(t testing.TB, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// start runs a daemon in a client's namespace until the test ends.
func start(t testing.TB, c *netns.Client, name string, args ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = f.Close()
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("%s said:\n%s", name, text)
		}
	})
}

// pair makes two joined interfaces in the test's own namespace, one of them a port of the segment.
func pair(t testing.TB, seg *netns.Segment, name string) {
	t.Helper()
	netns.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	netns.Run(t, "ip", "link", "set", name+"p", "master", seg.Bridge, "up")
	netns.Run(t, "ip", "link", "set", name, "up")
	netns.AwaitUp(t, seg.Bridge, name, name+"p")
}

func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
