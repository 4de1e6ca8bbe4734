//go:build cgo && libvirt_dlopen

package virt_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// noEvents keeps no events: a benchmark measures what the Server keeps.
type noEvents struct{}

func (noEvents) Record(event.Event) {}

// testDriver returns a server of n machines on libvirt's test driver.
func testDriver(b *testing.B, n int) (*virt.Server, []string) {
	b.Helper()
	l := oneHost(func(h *lab.Host) {
		h.VM.Hypervisor.DomainType, h.VM.Hypervisor.Pool = "test", "default-pool"
		h.VM.Memory, h.VM.Disks = 64<<20, []lab.Disk{{Size: 1 << 20}}
	})
	one := *l.Hosts[0]
	l.Hosts = nil
	var names []string
	for i := range n {
		h := one
		h.Name, h.MACs = fmt.Sprintf("vm%d", i), []lab.MAC{{0x52, 0x54, 0, 1, byte(i >> 8), byte(i)}}
		l.Hosts, names = append(l.Hosts, &h), append(names, h.Name)
	}
	table, err := virt.Compile(l)
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := virt.New(virt.Config{}, virt.Deps{Table: func() *virt.Table { return table }, Events: noEvents{}, Log: log, Registerer: prometheus.NewRegistry(),
		Now: time.Now, Driver: &virt.Processes{Program: "/proc/self/exe", Log: log}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return s, names
}

// BenchmarkCreateAndStart50 creates and starts 50 machines, and deletes them.
func BenchmarkCreateAndStart50(b *testing.B) {
	s, names := testDriver(b, 50)
	ctx := b.Context()
	for b.Loop() {
		for _, name := range names {
			if err := s.Create(ctx, name); err != nil {
				b.Fatal(err)
			}
			if err := s.Start(ctx, name); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		for _, name := range names {
			if err := s.Delete(ctx, name, virt.DeleteDisks); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
}

// BenchmarkLifecycle creates, starts, stops and deletes a machine. It reports the memory of the process of the hypervisor, and of Go's
// heap here, as what is more at the end than after the first 100 rounds.
func BenchmarkLifecycle(b *testing.B) {
	s, names := testDriver(b, 1)
	ctx := b.Context()
	round := func() {
		for _, err := range []error{
			s.Create(ctx, names[0]), s.Start(ctx, names[0]), s.Stop(ctx, names[0], virt.StopForce, 0), s.Delete(ctx, names[0], virt.DeleteDisks),
		} {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 100 {
		round()
	}
	resident, heap := memoryOf(b)
	for b.Loop() {
		round()
	}
	residentAfter, heapAfter := memoryOf(b)
	b.ReportMetric(float64(residentAfter-resident), "process-KiB-more")
	b.ReportMetric(float64(residentAfter), "process-KiB")
	b.ReportMetric(float64(heapAfter-heap)/1024, "heap-KiB-more")
}

// memoryOf returns the resident memory of the process of the hypervisor in KiB, and the bytes of Go's heap here.
func memoryOf(b *testing.B) (resident, heap int64) {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		b.Fatal(err)
	}
	parent := fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil || !strings.Contains(string(text), parent) {
			continue
		}
		if _, rest, ok := strings.Cut(string(text), "\nVmRSS:"); ok {
			var kib int64
			_, _ = fmt.Sscan(rest, &kib)
			resident += kib
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resident, int64(m.HeapAlloc)
}

// BenchmarkLibraryMemory reports the resident memory of a process for a hypervisor before it connects, which is that of this program
// without libvirt's libraries, and how much more it is with them.
func BenchmarkLibraryMemory(b *testing.B) {
	for b.Loop() {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), "BOOTLAB_HYPERVISOR=1"), []*os.File{theirs}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		_ = theirs.Close()
		ask := func(request string) {
			frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)
			head := make([]byte, 4)
			_, err := ours.Write(frame)
			if err == nil {
				_, err = io.ReadFull(ours, head)
			}
			if err == nil {
				_, err = io.CopyN(io.Discard, ours, int64(binary.BigEndian.Uint32(head)))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		before := settledMemory(b, cmd.Process.Pid)
		ask(`{"Method":"connect","Args":[{"URI":"test:///default"}]}`)
		b.ReportMetric(before, "MiB-without")
		b.ReportMetric(settledMemory(b, cmd.Process.Pid)-before, "MiB-more")
		_ = ours.Close() // it ends
		_ = cmd.Wait()
	}
}

// settledMemory returns the resident memory of a process in MiB, once it has not changed for half a second.
func settledMemory(b *testing.B, pid int) (mib float64) {
	b.Helper()
	for same := 0; same < 10; time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nVmRSS:")
		var kib int
		_, _ = fmt.Sscan(rest, &kib)
		if now := float64(kib) / 1024; now == mib {
			same++
		} else {
			mib, same = now, 0
		}
	}
	return mib
}
