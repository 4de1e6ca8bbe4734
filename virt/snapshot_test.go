//go:build cgo && libvirt_dlopen

package virt_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// TestSnapshots creates snapshots of a machine that is off and of one that runs, reverts to them and deletes them, on a real libvirtd.
func TestSnapshots(t *testing.T) {
	r := newConsoleRig(t, "hello\r\n")
	ctx := t.Context()
	wantErr(t, r.CreateSnapshot(ctx, "master-0", "clean"), "no such VM")
	check(t, r.Create(ctx, "master-0"))
	wantErr(t, r.CreateSnapshot(ctx, "master-0", "../clean"), "is no name of a snapshot")
	check(t, r.CreateSnapshot(ctx, "master-0", "clean"))
	wantErr(t, r.CreateSnapshot(ctx, "master-0", "clean"), `there is a snapshot "clean"`)
	check(t, r.Start(ctx, "master-0"))
	check(t, r.CreateSnapshot(ctx, "master-0", "up"))
	wantSnapshots(t, r, "clean off", "up running")
	check(t, r.Revert(ctx, "master-0", "clean"))
	wantState(t, r.testServer, virt.StateOff)
	check(t, r.Revert(ctx, "master-0", "up"))
	wantState(t, r.testServer, virt.StateRunning)
	check(t, r.DeleteSnapshot(ctx, "master-0", "clean"))
	wantSnapshots(t, r, "up running")
	wantErr(t, r.Revert(ctx, "master-0", "clean"), "clean")
	check(t, r.Delete(ctx, "master-0", virt.DeleteDisks)) // with its snapshots
}

func wantSnapshots(t *testing.T, r *consoleRig, want ...string) {
	t.Helper()
	all, err := r.Snapshots(t.Context(), "master-0")
	check(t, err)
	var got []string
	for _, s := range all {
		got = append(got, fmt.Sprintf("%s %s", s.Name, s.State))
		if s.Created.IsZero() {
			t.Errorf("snapshot %s has no time", s.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestSnapshotOfUEFI says why there is none.
func TestSnapshotOfUEFI(t *testing.T) {
	_, change := startLibvirtd(t)
	b := newTestServer(t, oneHost(change, func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFI }), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	if err := b.CreateSnapshot(t.Context(), "master-0", "clean"); err != nil { // libvirt 9 refuses, later ones may not
		wantErr(t, err, "firmware: bios")
	}
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
}
