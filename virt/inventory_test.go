//go:build cgo && libvirt_dlopen

package virt_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

func inventoryOf(ctx context.Context, uri string) (*virt.Inventory, error) {
	return (&virt.Processes{Program: "/proc/self/exe", Log: slog.New(slog.DiscardHandler)}).ReadInventory(ctx, uri)
}

// TestInventory reads domains, their disks and networks from a real libvirtd, and changes nothing there.
func TestInventory(t *testing.T) {
	d, change := startLibvirtd(t)
	b := newTestServer(t, oneHost(change), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	before := b.List(t.Context())
	inv, err := inventoryOf(t.Context(), d.URI)
	check(t, err)
	if len(inv.Domains) != 1 || inv.Domains[0].Name != "master-0" || !strings.Contains(inv.Domains[0].XML, "<memory unit='KiB'>262144</memory>") {
		t.Errorf("domains %+v", inv.Domains)
	}
	v := inv.Volumes[d.Images+"/master-0-vda.qcow2"]
	if v.Pool != libvirtd.Pool || v.Name != "master-0-vda.qcow2" || v.Format != "qcow2" || v.Capacity != uint64(gib) {
		t.Errorf("volumes %+v", inv.Volumes)
	}
	if after := b.List(t.Context()); !slices.EqualFunc(before, after, func(a, b virt.Status) bool { return a.UUID == b.UUID && a.State == b.State && a.Changed == b.Changed }) {
		t.Errorf("machines %+v, before %+v", after, before)
	}
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
}

// TestSilentInventory reads from a socket where nobody answers.
func TestSilentInventory(t *testing.T) {
	t.Parallel()
	netns.Need(t, "virsh")
	socket := filepath.Join(t.TempDir(), "silent")
	l, err := net.Listen("unix", socket)
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = inventoryOf(ctx, "qemu+unix:///system?socket="+socket)
	if err == nil || !strings.Contains(err.Error(), "no answer") || !strings.Contains(err.Error(), "restart libvirtd") {
		t.Errorf("error %v, want that there is no answer", err)
	}
}
