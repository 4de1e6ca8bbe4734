package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestTextsAfterLoss: after a loss, the texts about a host say since when its state is unknown, and name the safe steps first.
func TestTextsAfterLoss(t *testing.T) {
	h := serve(t)
	twoInstalls(h)
	h.stop()
	h.steps(step{args: "state", err: "bootlab doctor says whether the state is lost"})
	if err := os.Remove(filepath.Join(filepath.Dir(h.lab), "state", "state.db")); err != nil {
		t.Fatal(err)
	}
	h.start()
	const advice = "bootlab install d --done if it has a system, else bootlab install d, which overwrites its disk"
	h.steps(
		step{args: "hosts d", out: []string{"d: install state unknown since 20"}},
		step{args: "hosts", out: []string{"a, d: install state unknown since 20"}},
		step{args: "hosts --json", json: true, out: []string{`"install_unknown": "20`}},
		step{args: "timeline d", out: []string{"no boot recorded", "install state unknown since 20", advice}},
		step{args: "timeline d --json", json: true},
		step{args: "timeline 52:54:00:99:99:99", not: []string{"unknown since"}},
		step{args: "why d", err: "not booted: d", out: []string{"what to do put the state back first, if it or a backup exists (bootlab restore FILE", advice}},
	)
}

// TestLabMovedAway: the daemon of a lab file that was moved away is found by the name of that file; that of another lab is not.
func TestLabMovedAway(t *testing.T) {
	h := serve(t)
	socket := load.Appliance(h.lab).AdminSocket
	if err := os.Rename(h.lab, h.lab+".old"); err != nil {
		t.Fatal(err)
	}
	if !servesFile(socket, h.lab) || servesFile(socket, h.lab+"x") || servesFile(socket+"x", h.lab) {
		t.Error("servesFile is wrong about the lab of the daemon, of another, or a socket without one")
	}
	if err := os.Rename(h.lab+".old", h.lab); err != nil {
		t.Fatal(err)
	}
}
