package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestCompletion: arguments are completed by what the usage line calls them, with names of the lab file and without a daemon.
func TestCompletion(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(`version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1}}
balancers: {web: {listen: ["10.0.0.1:80"], backends: ["b:80", "10.0.0.7:80"]}}
hosts:
  a: {mac: "52:54:00:00:00:01", ip: 10.0.0.5}
  b: {mac: "52:54:00:00:00:02", ip: 10.0.0.6}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line string
		want []string // without descriptions
	}{
		{"why", []string{"a", "b", ":4"}},
		{"why a", []string{"b", ":4"}},
		{"timeline a", []string{":4"}}, // takes one
		{"plan", []string{"a", "b", "0.0.10.in-addr.arpa", "lab.example", ":4"}},
		{"power boot", []string{"network", "disk", "cd", "default", ":4"}},
		{"power boot network a", []string{"b", ":4"}},
		{"backend drain", []string{"web", ":4"}},
		{"backend drain web", []string{"b", "10.0.0.7", ":4"}},
		{"backend drain nosuch", []string{":4"}},
		{"backend weight web b", []string{"default", ":4"}},
		{"backup", []string{":0"}},
		{"openshift prepare", []string{":16"}},
		{"status", []string{":4"}},
	} {
		got := run(t.Context(), slices.Concat([]string{"__complete", "--lab", file}, strings.Fields(tt.line), []string{""})...)
		var lines []string
		for line := range strings.Lines(got.out) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			lines = append(lines, name)
		}
		if diff := cmp.Diff(tt.want, lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.line, diff)
		}
	}
}

// TestCompletionOfBrokenLab: a lab file with an error completes nothing, and says nothing at a tab.
func TestCompletionOfBrokenLab(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nhosts: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t.Context(), "__complete", "--lab", file, "why", ""); got.out != ":4\n" {
		t.Errorf("%q", got.out)
	}
}

func TestHostsNamed(t *testing.T) {
	t.Parallel()
	all := func() []api.Host {
		return []api.Host{
			{Name: "a", FQDN: "a.lab.example", MACs: []lab.MAC{{2, 1}}, IP: netip.MustParseAddr("10.0.0.5"), Cluster: "prod"},
			{Name: "b", FQDN: "b.lab.example", MACs: []lab.MAC{{2, 2}}, NICs: []api.NIC{{MAC: lab.MAC{2, 3}, IP: netip.MustParseAddr("10.1.0.6"), IP6: netip.MustParseAddr("fd00::6"), FQDN: "b-storage.lab.example"}}},
			{Name: "worker-0", FQDN: "worker-0.lab.example", Cluster: "prod"},
		}
	}
	for names, want := range map[string]string{
		"b a": "a b", "prod": "a worker-0", "prod a": "a worker-0", "B.lab.example": "b", "02:01:00:00:00:00": "a", "02:03:00:00:00:00": "b", "10.1.0.6": "b", "fd00::6": "b", "b-storage.lab.example.": "b",
	} {
		hosts, err := hostsNamed(all(), strings.Fields(names))
		var got []string
		for _, h := range hosts {
			got = append(got, h.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v, want %s", names, got, err, want)
		}
	}
	if _, err := hostsNamed(all(), []string{"worker0"}); err == nil || !strings.Contains(err.Error(), "did you mean worker-0?") {
		t.Errorf("a name with a mistake: %v", err)
	}
}
