package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// consoleLab has a machine that boots from a talker.
func consoleLab(uri string) string {
	return strings.NewReplacer("profiles:\n", "profiles:\n  talker: {image: images/talker.img}\n",
		"profile: guest, vars: {word: sesame}}", "profile: talker, vm: {hypervisor: here, cpus: 1, memory: 128MiB}}",
		"clusters:", "hypervisors:\n  here: {uri: \""+uri+"\", bridges: {inner: BRIDGE}, domain_type: qemu}\nclusters:",
	).Replace(bootLab)
}

// A terminal is a command on a terminal of its own.
type terminal struct {
	in io.Writer

	mu     sync.Mutex
	output []byte
	ended  bool
}

func (r *rig) terminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	line := os.Getenv(binaryVar) + " " + strings.Join(args, " ") + " --lab " + filepath.Join(r.dir, "lab.yaml")
	cmd := exec.Command("script", "-qec", line, "/dev/null")
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
	term, done := &terminal{in: in}, make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			term.mu.Lock()
			term.output = append(term.output, buf[:n]...)
			term.ended = err != nil
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return term
}

func (term *terminal) await(t *testing.T, what string, has func(output string, ended bool) bool) {
	t.Helper()
	eventually(t, patience, func() error {
		term.mu.Lock()
		defer term.mu.Unlock()
		if !has(string(term.output), term.ended) {
			return fmt.Errorf("no %s on the terminal: %q", what, term.output)
		}
		return nil
	})
}

// snapshots creates a snapshot of a machine that runs, reverts to it and deletes it. The console's log has no boot for that.
func snapshots(t *testing.T, r *rig) {
	t.Helper()
	r.bootlab(t, "vm", "snapshot", "create", "node", "up")
	if _, err := r.try("vm", "snapshot", "revert", "node", "up"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("a revert that nobody confirmed: %v", err)
	}
	r.bootlab(t, "vm", "stop", "node", "--force")
	r.bootlab(t, "vm", "snapshot", "revert", "node", "up", "--yes")
	if vms := ask[[]api.VM](t, r, "vm", "list"); len(vms) != 1 || vms[0].State != "running" {
		t.Errorf("after the revert: %+v", vms)
	}
	if all := ask[[]api.Snapshot](t, r, "vm", "snapshot", "list", "node"); len(all) != 1 || all[0].Name != "up" || all[0].State != "running" || !all[0].Current {
		t.Errorf("snapshots: %+v", all)
	}
	if all := ask[[]api.Snapshot](t, r, "vm", "snapshot", "delete", "node", "up", "--yes"); len(all) != 0 {
		t.Errorf("snapshots after the deletion: %+v", all)
	}
}

// TestConsole types on a machine's console from a terminal, leaves it, and finds its last line on the timeline, in the log and on the
// dashboard.
func TestConsole(t *testing.T) {
	t.Parallel()
	netns.Need(t, append(libvirtd.Needs(), "script")...)
	netns.Enter(t)
	libvirt := startLibvirt(t)
	const last = "Kernel panic - not syncing: <no> init found"
	r := newRigHere(t, consoleLab(libvirt.URI), map[string]string{"images/talker.img": string(guest.Talker("ready\r\n\x1b]0;title\x07\x1b[6n" + last + "\r\n"))})
	r.bootlab(t, "vm", "create", "node")
	r.bootlab(t, "vm", "stop", "node", "--force")
	term := r.terminal(t, "vm", "console", "node")
	term.await(t, "state", func(out string, _ bool) bool { return strings.Contains(out, "[node: the machine does not run]") })
	r.bootlab(t, "vm", "start", "node")
	term.await(t, "output", func(out string, _ bool) bool { return strings.Contains(out, last) })
	term.await(t, "no title, and no question to the terminal", func(out string, _ bool) bool {
		return !strings.Contains(out, "title") && !strings.Contains(out, "\x1b[6n")
	})
	if _, err := io.WriteString(term.in, "ls\x03"); err != nil { // Ctrl-C goes to the machine
		t.Fatal(err)
	}
	term.await(t, "echo", func(out string, _ bool) bool { return strings.HasSuffix(out, "ls") })
	if _, err := io.WriteString(term.in, "\x1d"); err != nil {
		t.Fatal(err)
	}
	term.await(t, "end", func(_ string, ended bool) bool { return ended })

	eventually(t, patience, func() error {
		for _, e := range r.events(t, "node") {
			if e.Kind == event.ConsolePanic && e.Detail == last {
				return nil
			}
		}
		return errors.New("no panic on the timeline")
	})
	eventually(t, patience, func() error {
		if text := string(r.bootlab(t, "vm", "log", "node", "--raw")); !strings.Contains(text, "ls\x03") || !strings.Contains(text, "\x1b]0;title") {
			return fmt.Errorf("vm log --raw: %q", text)
		}
		return nil
	})
	snapshots(t, r)
	if text := string(r.bootlab(t, "vm", "log", "node")); !strings.Contains(text, "ready\n"+last+"\n") || strings.Contains(text, "\x1b") {
		t.Errorf("vm log: %q", text)
	}
	if boots := ask[[]api.ConsoleBoot](t, r, "vm", "log", "node", "--list"); len(boots) == 0 || boots[len(boots)-1].Bytes == 0 {
		t.Errorf("vm log --list: %+v", boots)
	}
	page := netns.Run(t, "curl", "-s", "--unix-socket", filepath.Join(r.dir, "admin.sock"), "http://bootlab/hosts/node")
	if !strings.Contains(page, "Kernel panic - not syncing: &lt;no&gt; init found") {
		t.Errorf("the host's page lacks the console:\n%s", page)
	}
	if _, err := r.try("vm", "console", "other"); err == nil || !strings.Contains(err.Error(), `no host or cluster "other" in lab`) {
		t.Errorf("console of a host that is not in the lab: %v", err)
	}
	r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
}
