package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestPrivileges: every thread of the daemon runs as the lab file's user, with only the capabilities that a reload needs.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	r := newRig(t, clusterLab, nil)
	statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.daemon.cmd.Process.Pid))
	if err != nil || len(statuses) < 2 {
		t.Fatalf("threads of the daemon: %v, %v", statuses, err)
	}
	const (
		nobody = "65534\t65534\t65534\t65534"
		caps   = "0000000000002400" // CAP_NET_BIND_SERVICE, CAP_NET_RAW
		most   = "0000000000003400" // and CAP_NET_ADMIN, for the addresses that the daemon holds: effective on one thread while it adds one
	)
	adding := 0
	for _, path := range statuses {
		body, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that is gone
		}
		for key, want := range map[string]string{"Uid": nobody, "Gid": nobody, "CapEff": caps, "CapPrm": most} {
			got := regexp.MustCompile(`(?m)^` + key + `:\t(.*)$`).FindStringSubmatch(string(body))
			if key == "CapEff" && got != nil && got[1] == most && adding == 0 {
				adding++
				continue
			}
			if got == nil || got[1] != want {
				t.Errorf("%s: %s is %q, want %q", path, key, got, want)
			}
		}
	}
}

// TestSecondDaemon: a daemon whose ports are in use names the process that holds them, and does not disturb the first.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t, clusterLab, nil)
	cmd := exec.CommandContext(t.Context(), os.Getenv(binaryVar), "serve", "--lab", filepath.Join(r.dir, "lab.yaml"))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("a second daemon ran:\n%s", out)
	}
	if holder := fmt.Sprint(r.daemon.cmd.Process.Pid); !strings.Contains(string(out), holder) {
		t.Errorf("the error does not name the process %s:\n%s", holder, out)
	}
	r.bootlab(t, "status")
}

// TestDocument: a config document, which holds secrets, is served to the machine of this boot only.
func TestDocument(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "udhcpc", "curl")
	r := newRig(t, bootLab, bootFiles)
	node, other := r.seg.NewClient(t, nodeMAC), r.seg.NewClient(t)
	netns.Run(t, "ip", "-n", other.Name, "addr", "add", "10.77.0.66/24", "dev", "eth0")
	script := filepath.Join(t.TempDir(), "lease.sh")
	const body = "#!/bin/sh\n[ \"$1\" != bound ] || ip addr add \"$ip/$mask\" dev \"$interface\"\n"
	if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := node.Command(t.Context(), "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", script).CombinedOutput(); err != nil {
		t.Fatalf("udhcpc: %v\n%s", err, out)
	}
	ipxe, err := curl(t, node, "--fail", "http://10.77.0.1:8080/boot/"+strings.ReplaceAll(nodeMAC, ":", "-")+"/boot.ipxe")
	if err != nil {
		t.Fatalf("script: %v\n%s", err, ipxe)
	}
	url := regexp.MustCompile(`bootlab\.config=(\S+)`).FindStringSubmatch(ipxe)
	if url == nil {
		t.Fatalf("no document in the script:\n%s", ipxe)
	}
	status := func(who *netns.Client, url string) string {
		out, _ := curl(t, who, "--output", "/dev/null", "--write-out", "%{http_code}", url)
		return out
	}
	for _, step := range []struct {
		name string
		who  *netns.Client
		url  string
		want string
	}{
		{"another machine, with the right token", other, url[1], "403"},
		{"the machine, with a wrong token", node, strings.Replace(url[1], "/guest.conf", "X/guest.conf", 1), "403"},
		{"the template itself", node, "http://10.77.0.1:8080/files/config/guest.conf", "403"},
		{"the machine", node, url[1], "200"},
		{"the machine, once more", node, url[1], "403"},
	} {
		if step.name == "the machine, once more" { // until the first read has ended, the answer is 503
			r.awaitInstall(t, "installing")
		}
		if got := status(step.who, step.url); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
