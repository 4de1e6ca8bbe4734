package e2e

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
)

// clusterLab is a cluster of five nodes. The balancer asks for their health every 5 seconds.
const clusterLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1}
clusters:
  prod: {kind: openshift, domain: lab.test, address: 10.77.0.10, ingress: 10.77.0.11, etcd_srv: true}
hosts:
  bootstrap: {mac: "52:54:00:77:00:30", ip: 10.77.0.30, cluster: prod, role: bootstrap}
  master-0: {mac: "52:54:00:77:00:31", ip: 10.77.0.31, cluster: prod, role: control-plane, aliases: [etcd-0]}
  master-1: {mac: "52:54:00:77:00:32", ip: 10.77.0.32, cluster: prod, role: control-plane, aliases: [etcd-1]}
  worker-0: {mac: "52:54:00:77:00:41", ip: 10.77.0.41, cluster: prod, role: worker}
  worker-1: {mac: "52:54:00:77:00:42", ip: 10.77.0.42, cluster: prod, role: worker}
`

// healthPatience bounds how long the balancer takes to notice a change, which takes three checks.
const healthPatience = 2 * time.Minute

// TestClusterNames resolves, with dig and from another machine, all names that a cluster's installer and its users need.
func TestClusterNames(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "dig")
	r := newRig(t, clusterLab, nil)
	outside := r.seg.NewClient(t)
	netns.Run(t, "ip", "-n", outside.Name, "addr", "add", "10.77.0.99/24", "dev", "eth0")
	tests := []struct {
		name     string
		question []string
		want     []string
	}{
		{"api", []string{"api.prod.lab.test"}, []string{"10.77.0.10"}},
		{"api-int", []string{"api-int.prod.lab.test"}, []string{"10.77.0.10"}},
		{"any application", []string{"console.apps.prod.lab.test"}, []string{"10.77.0.11"}},
		{"deeper", []string{"a.b.apps.prod.lab.test"}, []string{"10.77.0.11"}},
		{"over TCP", []string{"+tcp", "API.prod.lab.test"}, []string{"10.77.0.10"}},
		{"node", []string{"master-1.prod.lab.test"}, []string{"10.77.0.32"}},
		{"reverse", []string{"-x", "10.77.0.41"}, []string{"worker-0.prod.lab.test."}},
		{"etcd", []string{"_etcd-server-ssl._tcp.prod.lab.test", "SRV"}, []string{"0 10 2380 etcd-0.prod.lab.test.", "0 10 2380 etcd-1.prod.lab.test."}},
		{"another name", []string{"etcd-1.prod.lab.test"}, []string{"10.77.0.32"}},
		{"no such name", []string{"missing.prod.lab.test"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"@" + appliance, "+short", "+tries=1", "+time=30"}, tt.question...)
			out, err := outside.Command(t.Context(), "dig", args...).CombinedOutput()
			if err != nil {
				t.Fatalf("dig: %v\n%s", err, out)
			}
			got := strings.Fields(string(out))
			if len(tt.question) > 1 && tt.question[1] == "SRV" {
				got = strings.Split(strings.TrimSpace(string(out)), "\n")
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got, equalEmpty); diff != "" {
				t.Errorf("dig %v: (-want +got)\n%s", tt.question, diff)
			}
		})
	}
}

// equalEmpty compares as sets; nil equals empty.
var equalEmpty = cmp.Transformer("set", func(s []string) map[string]bool {
	m := map[string]bool{}
	for _, e := range s {
		m[e] = true
	}
	return m
})

// TestClusterBalancers runs the nodes of a cluster, stops some, and checks which ones answer.
func TestClusterBalancers(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "curl")
	r := newRig(t, clusterLab, nil)
	for _, vip := range []string{"10.77.0.10/24", "10.77.0.11/24"} {
		netns.Run(t, "ip", "addr", "add", vip, "dev", r.seg.Bridge)
	}
	outside := r.seg.NewClient(t)
	netns.Run(t, "ip", "-n", outside.Name, "addr", "add", "10.77.0.99/24", "dev", "eth0")
	nodes := map[string]*backend{}
	for name, cidr := range map[string]string{
		"bootstrap": "10.77.0.30/24", "master-0": "10.77.0.31/24", "master-1": "10.77.0.32/24",
		"worker-0": "10.77.0.41/24", "worker-1": "10.77.0.42/24",
	} {
		nodes[name] = newBackend(t, r.seg, name, cidr)
	}
	const (
		apiURL     = "https://10.77.0.10:6443/version"
		configURL  = "https://10.77.0.10:22623/config/worker"
		secureURL  = "https://10.77.0.11/"
		ingressURL = "http://10.77.0.11/"
	)
	// The masters share the API and the machine configs, the workers the applications. The bootstrap node is a backup.
	r.wantUp(t, "prod-api", "bootstrap", "master-0", "master-1")
	r.wantUp(t, "prod-machine-config", "bootstrap", "master-0", "master-1")
	r.wantUp(t, "prod-ingress-http", "worker-0", "worker-1")
	r.wantUp(t, "prod-ingress-https", "worker-0", "worker-1")
	wantAnswers(t, outside, apiURL, "master-0", "master-1")
	wantAnswers(t, outside, configURL, "master-0", "master-1")
	wantSome(t, outside, secureURL, "worker-0", "worker-1")

	// A client stays with its worker. A drained worker gets no new connections.
	first := slices.Collect(maps.Keys(answers(t, outside, ingressURL)))
	if len(first) != 1 {
		t.Fatalf("one address reached %v by a balancer of kind source, want one of them", first)
	}
	other := map[string]string{"worker-0": "worker-1", "worker-1": "worker-0"}[first[0]]
	r.bootlab(t, "backend", "drain", "prod-ingress-http", first[0])
	wantAnswers(t, outside, ingressURL, other)
	r.bootlab(t, "backend", "ready", "prod-ingress-http", first[0])
	wantAnswers(t, outside, ingressURL, first[0])

	// A dead master gets no connections. Without any master the backup answers, until a master is back.
	nodes["master-0"].stop()
	r.wantUp(t, "prod-api", "bootstrap", "master-1")
	wantAnswers(t, outside, apiURL, "master-1")
	nodes["master-1"].stop()
	r.wantUp(t, "prod-api", "bootstrap")
	wantAnswers(t, outside, apiURL, "bootstrap")
	nodes["master-0"].start(t)
	r.wantUp(t, "prod-api", "bootstrap", "master-0")
	wantAnswers(t, outside, apiURL, "master-0")
}

// wantUp waits until exactly these backends of a balancer are healthy.
func (r *rig) wantUp(t *testing.T, balancer string, want ...string) {
	t.Helper()
	eventually(t, healthPatience, func() error {
		balancers, err := r.client(t).Balancers(t.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(balancers, func(b api.Balancer) bool { return b.Name == balancer })
		if i < 0 {
			return fmt.Errorf("no balancer %s", balancer)
		}
		var up []string
		for _, b := range balancers[i].Backends {
			if b.State == api.BackendUp {
				up = append(up, b.Name)
			}
		}
		slices.Sort(up)
		if diff := cmp.Diff(want, up); diff != "" {
			return fmt.Errorf("healthy members of %s: (-want +got)\n%s", balancer, diff)
		}
		return nil
	})
}

// answers requests a URL ten times, each by a connection of its own, and counts the answers of each node.
func answers(t *testing.T, from *netns.Client, url string) map[string]int {
	t.Helper()
	const asks = 10
	got := map[string]int{}
	for range asks {
		out, err := curl(t, from, "--fail", url)
		if err != nil {
			t.Fatalf("curl %s: %v\n%s", url, err, out)
		}
		got[strings.TrimSpace(out)]++
	}
	return got
}

func curl(t *testing.T, from *netns.Client, args ...string) (string, error) {
	cmd := from.Command(t.Context(), "curl", append([]string{"--silent", "--show-error", "--insecure", "--max-time", "60"}, args...)...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), err
}

// wantAnswers checks that exactly these nodes answer.
func wantAnswers(t *testing.T, from *netns.Client, url string, want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(answers(t, from, url)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes that answer for %s: (-want +got)\n%s", url, diff)
	}
}

// wantSome checks that only these nodes answer, not necessarily all.
func wantSome(t *testing.T, from *netns.Client, url string, may ...string) {
	t.Helper()
	for name := range answers(t, from, url) {
		if !slices.Contains(may, name) {
			t.Errorf("%s answers for %s, want one of %v", name, url, may)
		}
	}
}
