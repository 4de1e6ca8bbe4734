package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Job is a command that runs under Debian's kernel, for features that this machine's kernel lacks.
type Job struct {
	Modules  []string          // kernel modules to load; what they depend on is loaded too
	Programs []string          // names in PATH or absolute paths; copied under the same path, with their libraries
	Files    map[string][]byte // more files, by absolute path
	Script   string            // for a POSIX shell, as root, with /proc, /sys, /dev and /tmp
	Memory   int               // MiB, 1024 by default
}

// Prefixes of lines on the job's console.
const (
	jobBegins = "JOB BEGINS"
	jobEnds   = "JOB ENDS "
)

// Run runs a job in an emulated machine without a network and returns its output. An exit status that is not 0 is an error, as is a machine
// that has not finished when ctx ends. The kernel is taken from cache, where Build or an earlier Run put it, or else from Debian.
func Run(ctx context.Context, cache string, job Job) (output string, err error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	kernel, initrd := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd")
	if err := job.write(ctx, cache, kernel, initrd); err != nil {
		return "", fmt.Errorf("make the guest of a job: %w", err)
	}
	memory := job.Memory
	if memory == 0 {
		memory = 1024
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", fmt.Sprint(memory),
		"-display", "none", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet no_timer_check panic=-1 rdinit=/init random.trust_cpu=on")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	console, err := cmd.CombinedOutput()
	return outcome(console, err)
}

// outcome returns the output of a job, and its exit status as an error, from a console.
func outcome(console []byte, err error) (string, error) {
	text := strings.ReplaceAll(string(console), "\r", "")
	_, output, begun := strings.Cut(text, jobBegins+"\n")
	output, status, ended := strings.Cut(output, jobEnds)
	switch {
	case !begun:
		return text, fmt.Errorf("the guest did not start: %v", err)
	case !ended:
		return output, fmt.Errorf("the job did not end: %v", err)
	case strings.TrimSpace(strings.SplitN(status, "\n", 2)[0]) != "0":
		return output, fmt.Errorf("the job ended with status %.20s", status)
	}
	return output, nil
}

func (j Job) write(ctx context.Context, cache, kernelPath, initrdPath string) error {
	debs, err := fetch(ctx, filepath.Join(cache, "deb"), kernelPackage)
	if err != nil {
		return err
	}
	k, err := unpackKernel(ctx, debs[0], j.Modules)
	if err != nil {
		return err
	}
	files, err := borrow(append([]string{"/bin/busybox"}, j.Programs...))
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	a := archive{w: &buf}
	dirs := map[string]bool{}
	for _, dir := range []string{"bin", "dev", "etc", "modules", "proc", "sys", "tmp", "run", "root", "usr/share"} {
		a.folders(dirs, dir+"/")
	}
	a.addNode("dev/console", 0o020600, 5, 1)
	a.add("init", 0o100755, []byte(j.init(k.modules)))
	for _, m := range k.modules {
		a.add("modules/"+m.name, 0o100644, m.body)
	}
	for _, all := range []map[string][]byte{files, j.Files} {
		for path, body := range all {
			a.folders(dirs, path[1:])
			a.add(path[1:], 0o100755, body)
		}
	}
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	if err := os.WriteFile(kernelPath, k.image, 0o644); err != nil {
		return err
	}
	return os.WriteFile(initrdPath, buf.Bytes(), 0o644)
}

// init is the first process. busybox provides the programs that are not copied.
func (j Job) init(modules []module) string {
	var b strings.Builder
	b.WriteString(`#!/bin/busybox sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
for name in $(/bin/busybox --list); do [ -e /bin/$name ] || /bin/busybox ln -s busybox /bin/$name; done
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
exec </dev/console >/dev/console 2>&1
ip link set lo up
`)
	for _, m := range modules {
		fmt.Fprintf(&b, "insmod /modules/%s\n", m.name)
	}
	fmt.Fprintf(&b, "echo; echo '%s'\n(\n%s\n)\necho '%s'$?\npoweroff -f\n", jobBegins, j.Script, jobEnds)
	return b.String()
}

// folders writes the parent folders of path, once each.
func (a *archive) folders(have map[string]bool, path string) {
	for i := range path {
		if dir := path[:i]; path[i] == '/' && !have[dir] {
			have[dir] = true
			a.add(dir, 0o040755, nil)
		}
	}
}

// borrow reads programs of this machine with their libraries and loader, by absolute path.
func borrow(programs []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return nil, err
		}
		if files[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if err := borrowLibraries(path, files); err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", path, err)
		}
	}
	return files, nil
}

func borrowLibraries(path string, files map[string][]byte) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil // a script
	}
	defer f.Close()
	if f.Section(".interp") == nil {
		return nil // static
	}
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd: %w: %s", err, out)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(word, "/") || files[word] != nil {
			continue
		}
		if files[word], err = os.ReadFile(word); err != nil {
			return err
		}
	}
	return nil
}
