package main

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestStatesLost: that install states were lost is the first thing that status says, as a failure, and once.
func TestStatesLost(t *testing.T) {
	t.Parallel()
	const lost = "install states were lost, noticed 2026-11-21"
	var b strings.Builder
	statusHead(&b, api.Status{Lab: "l", StateLost: lost, Warnings: lab.Problems{{Message: "file not found"}, {Message: lost}}})
	lines := strings.Split(b.String(), "\n")
	if len(lines) < 2 || lines[1] != "failed: "+lost || strings.Count(b.String(), lost) != 1 || !strings.Contains(b.String(), "warning: file not found") {
		t.Errorf("got\n%s", &b)
	}
}

// TestProblemTable: a problem stands below its row, and a long one widens no column.
func TestProblemTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	long := strings.Repeat("long ", 60) + "reason"
	rows := [][]string{{"dhcpd", "serving", ""}, {"virt", "partly serving", long}, {"dnsd", ""}}
	if err := problemTable(&b, []string{"SERVER", "STATE"}, rows); err != nil {
		t.Fatal(err)
	}
	want := "SERVER  STATE\ndhcpd   serving\nvirt    partly serving\n  " + long + "\ndnsd    -\n"
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := listened([]string{""}); got != "relayed requests only" {
		t.Errorf("DHCP without an interface: %q", got)
	}
	for addrs, want := range map[string]string{"a:1 b:1 c:1": "a:1 b:1 c:1", "a:1 b:1 c:1 d:1": "a:1 b:1 and 2 more", "": ""} {
		if got := listened(strings.Fields(addrs)); got != want {
			t.Errorf("%q: got %q, want %q", addrs, got, want)
		}
	}
}
