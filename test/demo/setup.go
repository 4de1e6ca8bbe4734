package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/libvirtd"
)

// host is the machine of the demo.
const host = "demo-0"

const labFile = `version: 1
lab: demo
domain: demo.lab

appliance: {state: state, admin_socket: admin.sock, user: nobody}

networks:
  lab: {subnet: 10.77.0.0/24, interface: lab0, address: 10.77.0.1}

profiles:
  guest:
    kernel: images/vmlinuz
    initrd: [images/initrd.img]
    args: [console=ttyS0, quiet, no_timer_check, "bootlab.config={{.ConfigURL}}", "bootlab.done={{.DoneURL}}", "bootlab.image={{.FilesURL}}/public/disk.img"]
    config: guest.conf
    install_to: /dev/vda
    install: once

clusters:
  prod: {kind: openshift, domain: demo.lab, address: 10.77.0.1, etcd_srv: true}

hypervisors:
  here: {uri: "%s", bridges: {lab: lab0}, domain_type: qemu}

hosts:
  demo-0:
    mac: "52:54:00:77:00:01"
    ip: 10.77.0.11
    cluster: prod
    role: control-plane
    profile: guest
    vm: {hypervisor: here, cpus: 1, memory: 512MiB, disks: [1GiB], firmware: bios}
`

const guestConf = `disk={{.Profile.InstallTo}}
names={{.Host.FQDN}},api.{{.Cluster.Domain}}
message={{.Host.Name}}
check={{.FilesURL}}/public/greeting.txt
`

// A setup is what the demo has started and created.
type setup struct {
	dir     string
	binary  string
	began   time.Time
	libvirt *libvirtd.Daemon
	daemon  *exec.Cmd
	log     bytes.Buffer // of the daemon
	client  *api.Client
}

func newSetup() (*setup, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bootlab-demo-")
	if err != nil {
		return nil, err
	}
	s := &setup{dir: dir, binary: path, began: time.Now()}
	// The daemon changes to another user, whose state is in this folder.
	return s, os.Chmod(dir, 0o755)
}

// cleanUp stops everything, in reverse order. The namespaces end with this process.
func (s *setup) cleanUp() error {
	var errs []error
	if s.daemon != nil {
		_ = s.daemon.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = s.daemon.Process.Kill() })
		errs = append(errs, s.daemon.Wait())
		kill.Stop()
	}
	if s.libvirt != nil {
		errs = append(errs, s.libvirt.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *setup) path(name string) string { return filepath.Join(s.dir, name) }

func (s *setup) createNetwork(ctx context.Context) error {
	say("Create the bridge lab0 (10.77.0.1/24) in a network namespace")
	for _, args := range []string{
		"link set lo up", "link add lab0 type bridge stp_state 0 forward_delay 0", "addr add 10.77.0.1/24 dev lab0", "link set lab0 up",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

func (s *setup) startLibvirt(ctx context.Context) (err error) {
	say("Start a separate libvirtd")
	if err := os.Mkdir(s.path("libvirt"), 0o755); err != nil {
		return err
	}
	// The user that the daemon changes to is in this group.
	s.libvirt, err = libvirtd.Start(ctx, libvirtd.Config{Dir: s.path("libvirt"), Group: "nogroup"})
	return err
}

func (s *setup) startDaemon(ctx context.Context) error {
	if err := s.writeFiles(ctx); err != nil {
		return err
	}
	say("bootlab serve --lab lab.yaml")
	s.daemon = exec.Command(s.binary, "serve", "--lab", s.path("lab.yaml"))
	s.daemon.Stderr = &s.log
	s.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true} // only this process handles an interrupt
	if err := s.daemon.Start(); err != nil {
		s.daemon = nil
		return err
	}
	var err error
	if s.client, err = api.NewClient(s.path("admin.sock"), ""); err != nil {
		return err
	}
	for {
		if status, err := s.client.Status(ctx); err == nil && status.Ready() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", ctx.Err(), s.log.String())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(s.began) > 30*time.Second {
			return fmt.Errorf("the daemon is not ready after 30 seconds:\n%s", s.log.String())
		}
	}
}

// writeFiles writes the lab file and the files that the daemon serves.
func (s *setup) writeFiles(ctx context.Context) error {
	g, err := guest.Build(ctx, guest.CacheDir())
	if err != nil {
		return err
	}
	for _, dir := range []string{"files/images", "files/public"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	for name, from := range map[string]string{"images/vmlinuz": g.Kernel, "images/initrd.img": g.Initrd, "public/disk.img": g.Disk} {
		if out, err := exec.CommandContext(ctx, "cp", from, s.path("files/"+name)).CombinedOutput(); err != nil {
			return fmt.Errorf("cp %s: %w: %s", from, err, out)
		}
	}
	for name, text := range map[string]string{
		"lab.yaml": fmt.Sprintf(labFile, s.libvirt.URI), "files/guest.conf": guestConf, "files/public/greeting.txt": "it works\n",
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bootlab runs a bootlab command and prints it with its output.
func (s *setup) bootlab(ctx context.Context, args ...string) error {
	say("bootlab %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--lab", s.path("lab.yaml"))...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func (s *setup) showLab(ctx context.Context) error {
	if err := s.bootlab(ctx, "status"); err != nil {
		return err
	}
	say("dig: some DNS records that bootlab derives from the lab file")
	for _, question := range [][]string{{"api.prod.demo.lab"}, {"anything.apps.prod.demo.lab"}, {"-x", "10.77.0.11"}, {"_etcd-server-ssl._tcp.prod.demo.lab", "SRV"}} {
		out, err := exec.CommandContext(ctx, "dig", append([]string{"@10.77.0.1", "+short"}, question...)...).Output()
		if err != nil {
			return fmt.Errorf("dig %v: %w", question, err)
		}
		fmt.Printf("%-45s %s", strings.Join(question, " "), out)
	}
	return nil
}

func (s *setup) createMachine(ctx context.Context) error {
	return s.bootlab(ctx, "vm", "create", host)
}

// watchInstall shows the timeline until the installed system, booted from the disk, has fetched a file.
func (s *setup) watchInstall(ctx context.Context) error {
	say("bootlab timeline %s -f", host)
	installed := false
	watch, done := context.WithCancel(ctx)
	defer done()
	show := func(e event.Event) error {
		installed = installed || e.Kind == event.InstallLocalBoot
		if err := timeline.FormatEvent(os.Stdout, e, timeline.Options{}); err != nil {
			return err
		}
		if installed && e.Kind == event.FileServed && strings.HasSuffix(e.Detail, "greeting.txt") {
			done()
		}
		return nil
	}
	past, err := s.client.Boots(ctx, host)
	if err != nil {
		return err
	}
	for _, b := range past {
		for _, e := range b.Events {
			if err := show(e); err != nil {
				return err
			}
		}
	}
	err = s.client.Follow(watch, host, show)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("the stream of events ended: %w\n%s", err, s.log.String())
}

func (s *setup) summarize(ctx context.Context) error {
	for _, args := range [][]string{{"hosts"}, {"leases"}, {"vm", "list"}} {
		if err := s.bootlab(ctx, args...); err != nil {
			return err
		}
	}
	boots, err := s.client.Boots(ctx, host)
	if err != nil {
		return err
	}
	say("%s installed itself over the network and now runs from its own disk", host)
	for i, b := range boots {
		fmt.Printf("  boot %d: %s, %d events in %s\n", i+1, b.Outcome, len(b.Events), timeline.Since(b.Ended.Sub(b.Started)))
	}
	fmt.Printf("  The demo took %s. It now stops the machine and both daemons and removes its files.\n", timeline.Since(time.Since(s.began)))
	return nil
}
