//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// startLibvirtd runs a libvirtd until the test ends, and returns a change that puts the host's machine on it.
func startLibvirtd(t *testing.T) (*libvirtd.Daemon, func(*lab.Host)) {
	t.Helper()
	return startLibvirtdWith(t, libvirtd.Config{})
}

// startLibvirtdWith is startLibvirtd with a configuration, whose folder it makes.
func startLibvirtdWith(t *testing.T, cfg libvirtd.Config) (*libvirtd.Daemon, func(*lab.Host)) {
	t.Helper()
	netns.Need(t, libvirtd.Needs()...)
	cfg.Dir = t.TempDir()
	d, err := libvirtd.Start(context.WithoutCancel(t.Context()), cfg)
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	return d, func(h *lab.Host) {
		hv := h.VM.Hypervisor
		hv.URI, hv.Pool, hv.DomainType = d.URI, libvirtd.Pool, "qemu"
		h.VM.Memory, h.VM.CPUs, h.VM.Disks = gib/4, 1, []lab.Disk{{Size: gib}}
	}
}

// TestFrozenLibvirtd stops a libvirtd while machines are listed and others wait for it, and lets it go on: several calls at a
// time on one connection, which libvirt then closed, used to end the program with a segmentation fault.
func TestFrozenLibvirtd(t *testing.T) {
	rounds, frozen := 1, 12*time.Second // longer than a refresh waits
	if os.Getenv("BOOTLAB_LONG") != "" {
		rounds, frozen = 8, 45*time.Second
	}
	d, change := startLibvirtd(t)
	b := newTestServer(t, oneHost(change), nil, virt.Config{ListWait: 100 * time.Millisecond})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	for round := range rounds {
		check(t, d.Freeze())
		end := time.Now().Add(frozen + time.Duration(round)*8*time.Second)
		var callers sync.WaitGroup
		for time.Now().Before(end) {
			for range 4 {
				callers.Go(func() { b.List(t.Context()) })
			}
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if err := b.Start(ctx, "master-0"); err == nil {
					t.Error("a machine was started by a libvirtd that is frozen")
				}
			})
			time.Sleep(4 * time.Second)
		}
		netns.WaitFor(t, "a list that says that it is down", func() bool {
			st := b.List(t.Context())[0]
			return st.State == virt.StateUnknown && !st.Down.IsZero()
		})
		check(t, d.Thaw())
		callers.Wait()
		waitState(t, b, virt.StateOff)
		t.Logf("round %d: it lives, and knows the state again", round+1)
	}
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
}

// waitState waits until all machines have a state: longer than the longest back-off.
func waitState(t *testing.T, b *testServer, want virt.State) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		all := b.List(t.Context())
		if !slices.ContainsFunc(all, func(st virt.Status) bool { return st.State != want }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("state %+v, want %s", all, want)
		}
	}
}

// TestProcessOfAHypervisor looks at what the process may do, ends it during a call, and ends it while it is idle.
func TestProcessOfAHypervisor(t *testing.T) {
	d, change := startLibvirtd(t)
	b := newTestServer(t, oneHost(change), nil, virt.Config{ListWait: 100 * time.Millisecond})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	first := onlyChild(t)
	wantLines(t, fmt.Sprintf("/proc/%d/status", first), "NoNewPrivs: 1", "CapEff: 0000000000000000", "CapBnd: 0000000000000000")
	wantLines(t, fmt.Sprintf("/proc/%d/limits", first), "Max core file size 0 0 bytes", "Max open files 256 256 files")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", first))
	check(t, err)
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	rss, _, _ = strings.Cut(rss, "\n")
	t.Logf("resident memory of the process: %s", strings.TrimSpace(rss))

	check(t, d.Freeze())
	failed := make(chan error, 1)
	go func() { failed <- b.Start(t.Context(), "master-0") }()
	time.Sleep(time.Second) // it is in the call, or comes to it
	check(t, syscall.Kill(first, syscall.SIGKILL))
	wantErr(t, <-failed, "the libvirt process of the hypervisor ended: signal: killed")
	check(t, d.Thaw())
	waitState(t, b, virt.StateOff)
	second := onlyChild(t)
	if second == first {
		t.Error("the process that was killed is there")
	}
	check(t, syscall.Kill(second, syscall.SIGKILL))
	waitState(t, b, virt.StateOff)
	netns.WaitFor(t, "a new process", func() bool {
		b.List(t.Context())
		now := children(t)
		return len(now) == 1 && now[0] != second
	})
}

// wantLines checks that a file has lines, columns apart by one space.
func wantLines(t *testing.T, file string, want ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	lines := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, line := range want {
		if !lines[line] {
			t.Errorf("%s lacks %q:\n%s", file, line, text)
		}
	}
}

// A gate is content whose second part comes when it is opened.
type gate struct {
	first, rest io.Reader
	opened      chan struct{}
}

// Read implements io.Reader.
func (g *gate) Read(p []byte) (int, error) {
	if n, err := g.first.Read(p); err == nil {
		return n, nil
	}
	<-g.opened
	return g.rest.Read(p)
}

// TestLargeUploadDelaysNothing lists domains while an upload waits for its content, and ends an upload whose content ends early.
func TestLargeUploadDelaysNothing(t *testing.T) {
	d, _ := startLibvirtd(t)
	hv := (&virt.Processes{Program: "/proc/self/exe"}).Open(d.URI, func([]string) {})
	t.Cleanup(hv.Close)
	const n = 4 << 20
	const volume = `<volume><name>big</name><capacity>0</capacity><target><format type="raw"/></target></volume>`
	content := &gate{bytes.NewReader(make([]byte, n/2)), bytes.NewReader(bytes.Repeat([]byte{7}, n/2)), make(chan struct{})}
	uploaded := make(chan error, 1)
	go func() {
		_, err := hv.UploadVolume(t.Context(), libvirtd.Pool, volume, content, n)
		uploaded <- err
	}()
	for range 3 {
		if _, err := hv.Domains(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-uploaded:
		t.Fatalf("the upload ended before its content: %v", err)
	default:
	}
	close(content.opened)
	check(t, <-uploaded)
	if got, err := os.ReadFile(d.Images + "/big"); err != nil || len(got) != n || got[n-1] != 7 {
		t.Errorf("uploaded %d bytes (%v), want %d", len(got), err, n)
	}
	check(t, hv.DeleteVolume(t.Context(), libvirtd.Pool, "big"))
	if _, err := hv.UploadVolume(t.Context(), libvirtd.Pool, volume, strings.NewReader("too short"), n); err == nil {
		t.Error("an upload whose content ended early succeeded")
	}
	if v, err := hv.Volumes(t.Context(), []virt.VolumeID{{Pool: libvirtd.Pool, Name: "big"}}); err != nil || v[0].Path != "" {
		t.Errorf("the volume of the upload that failed is there: %v, %v", v, err)
	}

	// Zeros are sent as holes, also at the end.
	sparse := make([]byte, 16<<20)
	sparse[9<<20] = 7
	_, err := hv.UploadVolume(t.Context(), libvirtd.Pool, volume, bytes.NewReader(sparse), uint64(len(sparse)))
	check(t, err)
	if got, err := os.ReadFile(d.Images + "/big"); err != nil || !bytes.Equal(got, sparse) {
		t.Errorf("uploaded %d bytes (%v), want %d with one that is not zero", len(got), err, len(sparse))
	}
	var st unix.Stat_t
	check(t, unix.Stat(d.Images+"/big", &st))
	if has := st.Blocks * 512; has > 6<<20 {
		t.Errorf("the file takes %d bytes: want holes for zeros", has)
	}
}
