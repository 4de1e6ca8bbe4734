package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestKillWhileCreating kills the daemon while it creates a virtual machine on a real libvirtd, at several points: the next daemon shows
// what is missing, "vm apply" does the rest, nothing is there twice, and what others made stays as it was.
func TestKillWhileCreating(t *testing.T) {
	t.Parallel()
	netns.Need(t, libvirtd.Needs()...)
	netns.Enter(t)
	libvirt := startLibvirt(t)
	lab := strings.Replace(vmLab(libvirt.URI, "bios"), "disks: [1GiB]", "disks: [1GiB, 1GiB]", 1)
	r := newRigHere(t, lab, bootFiles)
	k := &vmKills{rig: r, libvirt: libvirt, seen: map[api.VMCondition]int{}}
	k.makeForeign(t)

	k.round(t, "apply", "never", func() bool { return false })
	for i, at := range []struct{ action, point, file string }{
		{"create", "a mark", "images/node-vda.qcow2.bootlab-*"},
		{"apply", "a disk", "images/node-vda.qcow2"},
		{"create", "the definition", "etc/qemu/node.xml"},
		{"apply", "the definition", "etc/qemu/node.xml"},
		{"create", "the start", "run/qemu/node.pid"},
	} {
		k.round(t, at.action, fmt.Sprintf("%d: after %s", i, at.point), k.exists(t, at.file))
	}
	rounds := 2
	if os.Getenv("BOOTLAB_LONG") != "" {
		rounds = 40
	}
	for i := range rounds {
		after := time.Now().Add(rand.N(k.takes))
		k.round(t, []string{"create", "apply"}[i%2], fmt.Sprintf("random %d", i), func() bool { return time.Now().After(after) })
	}
	t.Logf("seen after a kill: %v", k.seen)
}

// vmKills are the rounds of TestKillWhileCreating.
type vmKills struct {
	*rig
	libvirt *libvirtd.Daemon
	foreign string                  // what others made, as text
	takes   time.Duration           // a round without a kill
	seen    map[api.VMCondition]int // conditions of the machine after a kill
}

// makeForeign makes a domain and a volume that are not of the lab.
func (k *vmKills) makeForeign(t *testing.T) {
	t.Helper()
	xml := filepath.Join(k.dir, "theirs.xml")
	put(t, xml, []byte(`<domain type='qemu'><name>theirs</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os></domain>`))
	k.virsh(t, "define", xml)
	k.virsh(t, "vol-create-as", libvirtd.Pool, "theirs.qcow2", "1M", "--format", "qcow2")
	k.foreign = k.others(t)
}

func (k *vmKills) virsh(t *testing.T, args ...string) string {
	t.Helper()
	return netns.Run(t, "virsh", append([]string{"-c", k.libvirt.URI}, args...)...)
}

// others returns what others have on the hypervisor.
func (k *vmKills) others(t *testing.T) string {
	t.Helper()
	volume, err := os.ReadFile(filepath.Join(k.libvirt.Images, "theirs.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	return k.virsh(t, "dumpxml", "theirs") + fmt.Sprintf("%x", volume)
}

// exists returns a condition: that a file of libvirtd is there.
func (k *vmKills) exists(t *testing.T, pattern string) func() bool {
	return func() bool {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(k.libvirt.Images), pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}
}

// round creates the machine by an action, kills the daemon when it is time, and lets the next one do the rest.
func (k *vmKills) round(t *testing.T, action, name string, isTime func() bool) {
	t.Helper()
	began := time.Now()
	cmd := exec.Command(os.Getenv(binaryVar), "vm", action, "node", "--lab", filepath.Join(k.dir, "lab.yaml"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	killed := false
	for err := error(nil); ; {
		if !killed && isTime() {
			killed = true
			k.kill(t)
		}
		select {
		case err = <-ended:
		case <-time.After(time.Millisecond / 2):
			continue
		}
		if !killed && err != nil {
			t.Fatalf("%s (%s), which nobody interrupted: %v\n%s", action, name, err, out.Bytes())
		}
		break
	}
	if !killed {
		k.takes = time.Since(began)
	} else {
		k.start(t)
	}
	k.goOn(t, action+", killed "+name, killed)
	k.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
	k.wantPool(t, action+", killed "+name+", then deleted", "theirs.qcow2")
}

// plan returns the plan of machines; none named: of all. libvirt starts a machine paused and lets it run a moment later, also if nobody waits.
func (k *vmKills) plan(t *testing.T, names ...string) (plan []api.VMPlan) {
	t.Helper()
	netns.WaitFor(t, "the end of a start", func() bool {
		plan = ask[[]api.VMPlan](t, k.rig, append([]string{"vm", "plan"}, names...)...)
		return !slices.ContainsFunc(plan, func(p api.VMPlan) bool { return p.State == "paused" })
	})
	return plan
}

// goOn checks the plan of the machine, applies it, and checks what is there then.
func (k *vmKills) goOn(t *testing.T, round string, killed bool) {
	t.Helper()
	before := k.plan(t, "node")
	if len(before) != 1 || !slices.Contains([]api.VMCondition{api.VMMissing, api.VMUnstarted, api.VMOK}, before[0].Condition) {
		t.Fatalf("%s: plan %+v", round, before)
	}
	p := before[0]
	if killed {
		k.seen[p.Condition]++
	}
	if (p.Condition == "ok") != (p.State == "running") {
		t.Errorf("%s: the machine is %s and its plan %s: %v", round, p.State, p.Condition, p.Details)
	}
	k.bootlab(t, "vm", "apply")
	after := k.plan(t)
	if len(after) != 1 || after[0].Condition != "ok" || after[0].State != "running" {
		t.Errorf("%s, then applied: plan %+v", round, after)
	}
	domains := strings.Fields(k.virsh(t, "list", "--all", "--name"))
	if slices.Sort(domains); !slices.Equal(domains, []string{"node", "theirs"}) {
		t.Errorf("%s, then applied: domains %v", round, domains)
	}
	k.wantPool(t, round+", then applied", "node-vda.qcow2", "node-vdb.qcow2", "theirs.qcow2")
	if now := k.others(t); now != k.foreign {
		t.Errorf("%s: what others made has changed:\n%s\nwas\n%s", round, now, k.foreign)
	}
}

// wantPool checks which volumes the pool has; the marks go with those of the lab.
func (k *vmKills) wantPool(t *testing.T, round string, want ...string) {
	t.Helper()
	files, err := os.ReadDir(k.libvirt.Images)
	if err != nil {
		t.Fatal(err)
	}
	var volumes []string
	for _, f := range files {
		of, _, isMark := strings.Cut(f.Name(), ".bootlab")
		if !isMark {
			volumes = append(volumes, f.Name())
		} else if !slices.Contains(want, of) {
			t.Errorf("%s: mark %s without its volume", round, f.Name())
		}
	}
	if slices.Sort(volumes); !slices.Equal(volumes, want) {
		t.Errorf("%s: volumes %v, want %v", round, volumes, want)
	}
}
