package virt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/virt"
)

// TestWhatIsNotThereIsRefused: an operation on what does not exist is the error of who asked, and no event of the machine's boot.
func TestWhatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newTestServer(t, oneHost(), newFake(), virt.Config{})
	wantErr(t, b.Delete(ctx, "master-0", virt.KeepDisks), "no such VM: nothing to delete")
	wantErr(t, b.SetBoot(ctx, "master-0", virt.BootNetwork, virt.NextStart), "no such VM: create it first")
	wantErr(t, b.Start(ctx, "master-0"), "no such VM: create it first")
	b.wantEvents(t)
	check(t, b.Create(ctx, "master-0"))
	b.events.take()
	wantErr(t, b.Revert(ctx, "master-0", "nope"), `no snapshot "nope": master-0 has none`)
	wantErr(t, b.DeleteSnapshot(ctx, "master-0", "nope"), `no snapshot "nope": master-0 has none`)
	check(t, b.SetBoot(ctx, "master-0", virt.BootNetwork, virt.NextStart))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	b.events.take()
	if err := b.Delete(ctx, "master-0", virt.DeleteDisks); !errors.Is(err, virt.ErrAbsent) || strings.Contains(err.Error(), "create") {
		t.Errorf("second delete: %v", err)
	}
	b.wantEvents(t)
}

// TestOneSilentHypervisor: where there is no other hypervisor, none is advised.
func TestOneSilentHypervisor(t *testing.T) {
	t.Parallel()
	f, l := threeFakes(), openLab("a")
	l.Hypervisors = l.Hypervisors[:1]
	l.Hosts[0].VM.Candidates = l.Hosts[0].VM.Candidates[:1]
	b := newTestServer(t, l, f, virt.Config{})
	f["fake://kvm1"].fail["dial"] = virt.Unreachable(errors.New("no route to host"))
	err := b.Create(t.Context(), "a")
	wantErr(t, err, "may have it: start kvm1")
	if strings.Contains(err.Error(), "others") {
		t.Errorf("advice: %v", err)
	}
}
