package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"

	"golang.org/x/sys/unix"
)

// twoCPUs returns the numbers of two CPUs that we may use: the server's and the load's.
func twoCPUs() (cpus [2]string, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return cpus, fmt.Errorf("which CPUs there are: %w", err)
	}
	found := 0
	for cpu := 0; cpu < 8*len(set)*8 && found < len(cpus); cpu++ {
		if set.IsSet(cpu) {
			cpus[found] = strconv.Itoa(cpu)
			found++
		}
	}
	if found < len(cpus) {
		return cpus, errors.New("the server is measured on one CPU and the load on another; there is only one")
	}
	return cpus, nil
}

// A process is a server that runs. The zero process does not run.
type process struct {
	cmd *exec.Cmd
	log *os.File
}

// onCPU is the prefix of a command that pins it to one CPU. taskset becomes the command, so it has its CPU from the
// start.
func onCPU(cpu string) []string { return []string{"taskset", "-c", cpu} }

// pinned is the same, for a CPU that other processes cannot take from it. It changes how threads of one
// process take turns: DHCP is measured without.
func pinned(cpu string) []string { return append(onCPU(cpu), "chrt", "--rr", "10") }

// begin starts a server behind a prefix, in a namespace. Its output is appended to the file log.
func (p *process) begin(front []string, space string, args, env []string, log string) error {
	return p.run(slices.Concat(front, []string{"ip", "netns", "exec", space}, args), env, log)
}

func (p *process) run(args, env []string, log string) (err error) {
	p.log, err = os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return errors.Join(err, p.log.Close())
	}
	return nil
}

// beginSelf starts this program with a command, behind a prefix, in the load's namespace.
func (p *process) beginSelf(front []string, log string, command ...string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return p.run(slices.Concat(front, []string{self}, command), nil, log)
}

// await waits until a server that was begun is ready.
func (p *process) await(ctx context.Context, ready func() error) (err error) {
	for range 200 {
		if err = ready(); err == nil {
			return nil
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	text, _ := os.ReadFile(p.log.Name())
	return fmt.Errorf("%w: %.600s", err, text)
}

// cpu returns the CPU time that the server has used.
func (p *process) cpu() time.Duration { return cpuTime(p.cmd.Process.Pid) }

// cpuTime returns the CPU time of a process, to the nanosecond: what /proc tells is too coarse for a short run.
func cpuTime(pid int) time.Duration {
	const schedulerClock = 2 // the kernel's CPUCLOCK_SCHED, of all threads of a process, see clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// resident returns MiB, of the server and its children.
func (p *process) resident() float64 { return float64(residentOf(p.cmd.Process.Pid)) / (1 << 20) }

// kill ends it without a chance to write anything.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
	_ = p.log.Close()
}

// end asks it to end, and waits.
func (p *process) end() {
	if p.cmd == nil {
		return
	}
	stop([]*exec.Cmd{p.cmd})
	p.cmd = nil
	_ = p.log.Close()
}

// scratch makes the folder of a candidate that is about to start.
func (b *bench) scratch(name string) (dir string, err error) {
	b.started++
	dir = filepath.Join(b.dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), b.started))
	return dir, os.Mkdir(dir, 0o755)
}

// leave ends a candidate and removes what it wrote.
func (b *bench) leave(p *process, dir string) error {
	p.end()
	if b.keep {
		return nil
	}
	return os.RemoveAll(dir)
}

// carryOut makes this program a load, in a process of its own behind a prefix, for one order. Order and answer
// are JSON.
func carryOut(ctx context.Context, front []string, command string, order, answer any) error {
	line, err := json.Marshal(order)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := slices.Concat(front, []string{self, command})
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(line), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return json.Unmarshal(out, answer)
}
