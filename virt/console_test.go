//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// A consoleRig is a Server with a log of consoles, and a machine that boots from a talker.
type consoleRig struct {
	*testServer
	libvirt *libvirtd.Daemon
	log     *consolelog.Log

	mu    sync.Mutex
	found []consolelog.Finding
}

func newConsoleRig(t *testing.T, text string) *consoleRig {
	t.Helper()
	netns.Need(t, libvirtd.Needs()...)
	seg := netns.NewSegment(t, "10.122.1.1/24")
	d, change := startLibvirtd(t)
	r := &consoleRig{libvirt: d}
	var err error
	r.log, err = consolelog.Open(consolelog.Config{Dir: t.TempDir()}, consolelog.Deps{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Registerer: prometheus.NewRegistry(), Found: func(f consolelog.Finding) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.found = append(r.found, f)
		},
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
	})
	l := oneHost(change, func(h *lab.Host) {
		h.Profile = &lab.Profile{Name: "talker", Image: "images/base.qcow2"}
		h.VM.Memory, h.VM.Disks = gib/8, nil
		h.VM.Hypervisor.Bridges = []lab.Attachment{{Network: h.Network, Bridge: seg.Bridge}}
	})
	files := fstest.MapFS{"images/base.qcow2": {Data: guest.Talker(text)}}
	r.testServer = newTestServerOf(t, &images{file: files}, l, virt.Config{}, virt.Deps{Consoles: r.log})
	serve(t, r.testServer)
	return r
}

// A follower is what a console has written since it was opened.
type follower struct {
	mu     sync.Mutex
	output bytes.Buffer
	states []string
	waited int // states that wantState has waited for, and those before
	closed bool
}

func (r *consoleRig) follow(t *testing.T) *follower {
	t.Helper()
	out, err := r.Console(t.Context(), "master-0")
	check(t, err)
	f := &follower{}
	go func() {
		for o := range out {
			f.mu.Lock()
			f.output.Write(o.Output)
			if o.State != "" {
				f.states = append(f.states, o.State)
			}
			f.mu.Unlock()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.closed = true
	}()
	return f
}

func (f *follower) waitFor(t *testing.T, what string, has func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		f.mu.Lock()
		ok := has()
		state := f.states
		output := f.output.String()
		f.mu.Unlock()
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			t.Fatalf("no %s: states %q, output %q", what, state, output)
		}
	}
}

func (f *follower) wantOutput(t *testing.T, text string) {
	t.Helper()
	f.waitFor(t, text, func() bool { return strings.Contains(f.output.String(), text) })
}

// wantEcho types a text until the machine echoes it: what a machine writes before its console is open is lost, and what is typed before it reads, too.
func (r *consoleRig) wantEcho(t *testing.T, f *follower, text string) {
	t.Helper()
	netns.WaitFor(t, "the echo of "+text, func() bool {
		check(t, r.Type(t.Context(), "master-0", []byte(text)))
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Contains(f.output.String(), text)
	})
}

func (f *follower) wantState(t *testing.T, text string) {
	t.Helper()
	f.waitFor(t, "state "+text, func() bool {
		i := slices.IndexFunc(f.states[f.waited:], func(s string) bool { return strings.Contains(s, text) })
		f.waited += i + 1
		return i >= 0
	})
}

// kept waits until the log has so many boots of the machine and the last has a text.
func (r *consoleRig) kept(t *testing.T, boots int, text string) {
	t.Helper()
	var all []consolelog.Boot
	var last []byte
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		r.log.Flush(t.Context())
		if all = r.log.Boots("master-0"); len(all) > 0 {
			var err error
			last, err = r.log.Read("master-0", all[len(all)-1].Started)
			check(t, err)
		}
		if len(all) == boots && strings.Contains(string(last), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d boots are kept, the last with %q; want %d, and %q", len(all), last, boots, text)
		}
	}
}

// A noLog keeps nothing of consoles.
type noLog struct{}

func (noLog) Begin(string, string) {}
func (noLog) Write(string, []byte) {}

// TestConsoleOfNoMachine: one that was deleted, or never created, has no console to wait for; one that is off has.
func TestConsoleOfNoMachine(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: newFake(), Consoles: noLog{}})
	serve(t, b)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until Serve runs
		if _, err := b.Console(ctx, "master-0"); !errors.Is(err, virt.ErrNoConsoles) || time.Now().After(deadline) {
			break
		}
	}
	b.List(ctx)
	console := func(want error) {
		t.Helper()
		if _, err := b.Console(ctx, "master-0"); !errors.Is(err, want) {
			t.Errorf("console: %v, want %v", err, want)
		}
		if err := b.TakeConsole("master-0"); !errors.Is(err, want) {
			t.Errorf("take: %v, want %v", err, want)
		}
	}
	console(virt.ErrAbsent)
	check(t, b.Create(ctx, "master-0"))
	console(nil)
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	console(virt.ErrAbsent)
}

// TestConsole types on the console of a machine, resets it, stops and starts it, and reads what is kept of each boot.
func TestConsole(t *testing.T) {
	const panicLine = "Kernel panic - not syncing: Attempted to kill init!"
	r := newConsoleRig(t, "hello\r\n"+panicLine+"\r\n")
	check(t, r.Create(t.Context(), "master-0"))
	f := r.follow(t)
	f.wantState(t, "does not run")
	wantErr(t, r.Type(t.Context(), "master-0", []byte("x")), "the console of master-0 is not open: the machine does not run")
	check(t, r.Start(t.Context(), "master-0"))
	f.wantOutput(t, panicLine)
	f.wantState(t, "connected")
	check(t, r.Type(t.Context(), "master-0", []byte("typed-1")))
	f.wantOutput(t, "typed-1")
	r.kept(t, 1, "typed-1")

	check(t, r.Type(t.Context(), "master-0", []byte("R"))) // the guest resets itself
	r.kept(t, 2, panicLine)
	check(t, r.Stop(t.Context(), "master-0", virt.StopForce, 0))
	f.wantState(t, "off")
	check(t, r.Start(t.Context(), "master-0"))
	f.wantState(t, "connected")
	r.kept(t, 3, panicLine)
	check(t, r.Type(t.Context(), "master-0", []byte("typed-2")))
	f.wantOutput(t, "typed-2")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range r.found {
		if found.Host != "master-0" || found.Meaning != consolelog.Panic || found.Line != panicLine {
			t.Errorf("found %+v", found)
		}
	}
	if len(r.found) != 3 {
		t.Errorf("found %d panics, want one for each boot", len(r.found))
	}
}

// TestConsoleIsTaken has virsh take the console, and takes it back.
func TestConsoleIsTaken(t *testing.T) {
	r := newConsoleRig(t, "hello\r\n")
	check(t, r.Create(t.Context(), "master-0"))
	f := r.follow(t) // before the start: it gets what is written from now on
	check(t, r.Start(t.Context(), "master-0"))
	f.wantState(t, "connected")
	r.wantEcho(t, f, "first")
	virsh := exec.Command("script", "-qec", "virsh -c '"+r.libvirt.URI+"' console --force master-0", "/dev/null")
	in, err := virsh.StdinPipe() // as long as it is open, virsh goes on
	check(t, err)
	out, err := virsh.StdoutPipe()
	check(t, err)
	check(t, virsh.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = virsh.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = virsh.Wait()
	})
	buf := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "Escape character"); {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if err != nil {
			t.Fatalf("virsh: %q, %v", text, err)
		}
	}
	netns.WaitFor(t, "the reason", func() bool {
		err := r.Type(t.Context(), "master-0", []byte("x"))
		return err != nil && strings.Contains(err.Error(), "Active console session exists")
	})
	back := r.follow(t)
	check(t, r.TakeConsole("master-0"))
	back.wantState(t, "connected")
	check(t, r.Type(t.Context(), "master-0", []byte("mine")))
	back.wantOutput(t, "mine")
}

// TestConsoleOutlivesItsProcess ends the process of the consoles; another one takes over, in the same boot.
func TestConsoleOutlivesItsProcess(t *testing.T) {
	r := newConsoleRig(t, "hello\r\n")
	check(t, r.Create(t.Context(), "master-0"))
	f := r.follow(t) // before the start: it gets what is written from now on
	check(t, r.Start(t.Context(), "master-0"))
	f.wantState(t, "connected")
	r.wantEcho(t, f, "first")
	processes := append(childrenNamed(t, "consoles"), children(t)...)
	if len(processes) != 2 {
		t.Fatalf("%d processes of the hypervisor, want one for calls and one for consoles", len(processes))
	}
	for _, pid := range processes {
		netns.Run(t, "kill", "-9", strconv.Itoa(pid))
	}
	f.wantState(t, "does not answer")
	f.wantState(t, "connected")
	r.wantEcho(t, f, "again")
	r.kept(t, 1, "again")
}
