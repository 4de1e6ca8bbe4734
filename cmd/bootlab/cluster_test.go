package main

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

// TestClusterCause: the table, the lines without a terminal and the error at the end name why a machine's boot stopped.
func TestClusterCause(t *testing.T) {
	t.Parallel()
	before := api.Cluster{Name: "prod", Phase: "bootstrapping", Waits: "m0: files", Machines: []api.ClusterMachine{{Host: "m0", Stage: "booting", Waits: "files"}, {Host: "m1", Stage: "serving"}}}
	after := before
	after.Machines = []api.ClusterMachine{{Host: "m0", Stage: "booting", Waits: "files", Cause: "a file is missing: k"}, before.Machines[1]}
	if lines := changes(before, after); len(lines) != 1 || lines[0] != "m0 booting, waits for files; stopped: a file is missing: k" {
		t.Errorf("news %q", lines)
	}
	if lines := changes(after, after); len(lines) != 0 {
		t.Errorf("nothing changed, and there is news: %q", lines)
	}
	const want = "m0: a file is missing: k (bootlab why m0)"
	if text := clusterText(after); !strings.Contains(text, "! "+want) || strings.Contains(text, "why m1") {
		t.Errorf("table:\n%s", text)
	}
	if err := stillUp(t.Context(), after, time.Minute); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "m1") {
		t.Errorf("error: %v", err)
	}
}
