package interop

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestEtcdDiscovery: three etcd members on three machines find each other by the SRV records of their cluster (--discovery-srv), and hold what is
// written to one.
func TestEtcdDiscovery(t *testing.T) {
	netns.Need(t, "etcd", "etcdctl", "unshare")
	t.Parallel()
	l := newLab(t, "10.124.2")
	l.more = "clusters: {c: {kind: kubernetes, etcd_srv: true}}\n"
	for i := range 3 {
		l.hosts += fmt.Sprintf("  m%d: {mac: \"52:54:00:00:7c:%02x\", ip: NET.%d, cluster: c, role: control-plane}\n", i, i, 21+i)
	}
	l.write()
	d := start(t, l)
	l.file("resolv.conf", []byte("nameserver "+d.addr+"\nsearch c.lab.test\n"))
	resolv := filepath.Join(l.dir, "resolv.conf")
	var members []*machine
	for i := range 3 {
		m := d.machine(t, fmt.Sprintf("52:54:00:00:7c:%02x", i), fmt.Sprintf("10.124.2.%d", 21+i))
		m.AwaitUp(t, "eth0")
		ctx, cancel := context.WithCancel(context.Background())
		name := fmt.Sprintf("m%d", i)
		cmd := m.Command(ctx, "unshare", "-m", "sh", "-c", fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec etcd --name %s --data-dir %s "+
			"--discovery-srv c.lab.test --initial-advertise-peer-urls https://%s.c.lab.test:2380 --listen-peer-urls https://10.124.2.%d:2380 --peer-auto-tls "+
			"--advertise-client-urls http://%[2]s.c.lab.test:2379 --listen-client-urls http://10.124.2.%[5]d:2379,http://127.0.0.1:2379 --initial-cluster-state new",
			resolv, name, t.TempDir(), name, 21+i))
		var out output
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", name, tail(out.String()))
			}
		})
		members = append(members, m)
	}
	etcdctl := func(m *machine, args ...string) string {
		out, _ := m.run("env", append([]string{"ETCDCTL_API=3", "etcdctl", "--endpoints=http://127.0.0.1:2379", "--command-timeout=20s"}, args...)...)
		return strings.TrimSpace(out)
	}
	d.until("three members", func() bool { return strings.Count(etcdctl(members[0], "member", "list"), ", started, ") == 3 })
	d.until("the second takes a value", func() bool { return etcdctl(members[1], "put", "greeting", "hello") == "OK" })
	for i, m := range members {
		d.until(fmt.Sprintf("member %d has it", i), func() bool { return etcdctl(m, "get", "greeting", "--print-value-only") == "hello" })
	}
	if _, err := exec.LookPath("dig"); err == nil && strings.Count(d.dig("_etcd-server-ssl._tcp.c.lab.test", "SRV"), "2380") != 3 {
		t.Error("the SRV records are not three")
	}
}
