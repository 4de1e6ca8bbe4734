package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A setup is a set of processes that together serve a lab.
type setup struct {
	name     string
	commands [][]string
	ports    []port
	prepare  func(ctx context.Context) error // is called once, while the setup runs; nil: nothing to do
}

// A port answers when its server is ready.
type port struct {
	network, addr string
	question      []byte // of a UDP port; a TCP port is ready when it accepts
}

// dnsQuestion asks for the A record of a.test; any answer will do.
func dnsQuestion() []byte {
	return []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01")
}

// tftpQuestion reads a file that is not there; an error is an answer.
func tftpQuestion() []byte { return []byte("\x00\x01missing\x00octet\x00") }

func lab(dir string, hosts int) (string, error) {
	root := filepath.Join(dir, fmt.Sprintf("lab%d", hosts))
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `version: 1
lab: bench
domain: test
appliance: {state: state, admin_socket: admin.sock, user: nobody}
networks:
  n: {subnet: 10.0.0.0/8, interface: br0, address: 10.0.0.1, pools: {guests: {range: 10.250.0.1-10.251.255.254}}}
profiles:
  worker: {os: coreos, kernel: kernel, initrd: [initrd], config: "{{.Host.Role}}.ign", install_to: /dev/vda}
clusters:
  c: {kind: openshift, domain: test, address: 10.0.0.1}
hosts:
`)
	for i := range hosts {
		role, cluster := "worker", ""
		if i < 6 {
			cluster = ", cluster: c"
		}
		if i < 3 {
			role = "control-plane"
		}
		fmt.Fprintf(&b, "  host-%d: {mac: \"52:54:00:%02x:%02x:%02x\", ip: 10.%d.%d.%d, role: %s, profile: worker%s}\n",
			i, i>>16&255, i>>8&255, i&255, 1+i>>16, i>>8&255, i&255, role, cluster)
	}
	path := filepath.Join(root, "lab.yaml")
	return path, os.WriteFile(path, b.Bytes(), 0o644)
}

func (b *bench) bootlab(hosts int) (setup, error) {
	path, err := lab(b.dir, hosts)
	return setup{
		name:     fmt.Sprintf("bootlab, %d hosts", hosts),
		commands: [][]string{{b.binary, "serve", "--lab", path, "--log-level", "error"}},
		ports: []port{
			{"udp", "10.0.0.1:53", dnsQuestion()}, {"udp", "10.0.0.1:69", tftpQuestion()},
			{"tcp", "10.0.0.1:8080", nil}, {"tcp", "10.0.0.1:6443", nil}, {"tcp", "127.0.0.1:9680", nil},
		},
	}, err
}

// bootlabWithLeases is bootlab with a lease book of n machines, that it reads at each start.
func (b *bench) bootlabWithLeases(n int) (setup, error) {
	const hosts = 10
	s, err := b.bootlab(hosts)
	if err != nil {
		return setup{}, err
	}
	// A lab of its own, so that the other one starts without leases.
	root := filepath.Join(b.dir, "lab-leases")
	if err := os.Rename(filepath.Join(b.dir, fmt.Sprintf("lab%d", hosts)), root); err != nil {
		return setup{}, err
	}
	path := filepath.Join(root, "lab.yaml")
	s.name = fmt.Sprintf("%s, %d leases", s.name, n)
	s.commands = [][]string{{b.binary, "serve", "--lab", path, "--log-level", "error"}}
	s.prepare = func(ctx context.Context) error {
		var rows bytes.Buffer
		fmt.Fprintln(&rows, "ip,mac,expires,hostname")
		for i := range n {
			at := i + 1
			fmt.Fprintf(&rows, "10.%d.%d.%d,02:00:00:%02x:%02x:%02x,%s,node-%d\n", 250+at>>16, at>>8&255, at&255, i>>16, i>>8&255, i&255,
				time.Now().Add(12*time.Hour).UTC().Format(time.RFC3339), i)
		}
		file := filepath.Join(root, "leases.csv")
		if err := os.WriteFile(file, rows.Bytes(), 0o644); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, b.binary, "leases", "import", file, "--lab", path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("import leases: %w\n%s", err, out)
		}
		return nil
	}
	return s, nil
}

// stack is what a lab runs today: dnsmasq for DHCP and DNS, HAProxy, nginx and tftpd-hpa.
func (b *bench) stack() (setup, error) {
	haproxy, nginx := filepath.Join(b.dir, "haproxy.cfg"), filepath.Join(b.dir, "nginx.conf")
	var listens strings.Builder
	for _, p := range []string{"6443", "22623", "443", "80"} {
		fmt.Fprintf(&listens, "listen l%s\n  mode tcp\n  bind 10.0.0.1:%s\n", p, p)
		for i := range 3 {
			fmt.Fprintf(&listens, "  server s%d 10.1.0.%d:%s check\n", i, i, p)
		}
	}
	files := map[string]string{
		haproxy: "defaults\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n" + listens.String(),
		nginx: fmt.Sprintf("daemon off; worker_processes 2; pid %s/nginx.pid; error_log %s/nginx.log;\nevents {}\nhttp { access_log off; server { listen 10.0.0.1:8080; root %s; } }\n",
			b.dir, b.dir, b.dir),
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return setup{}, err
		}
	}
	return setup{
		name: "dnsmasq + HAProxy + nginx + tftpd",
		commands: [][]string{
			{"dnsmasq", "-k", "-C", "/dev/null", "--user=root", "--pid-file=", "--no-resolv", "--no-hosts", "--interface=br0", "--bind-interfaces",
				"--dhcp-range=10.250.0.1,10.250.255.254", "--dhcp-leasefile=" + filepath.Join(b.dir, "leases")},
			{"haproxy", "-db", "-q", "-f", haproxy},
			{"nginx", "-c", nginx},
			{"in.tftpd", "-L", "-a", "10.0.0.1:69", "-s", b.dir},
		},
		ports: []port{
			{"udp", "10.0.0.1:53", dnsQuestion()}, {"udp", "10.0.0.1:69", tftpQuestion()},
			{"tcp", "10.0.0.1:8080", nil}, {"tcp", "10.0.0.1:6443", nil},
		},
	}, nil
}

// footprint measures start to ready and resident memory of all setups, in turn within each round.
func footprint(ctx context.Context, b *bench) error {
	var all []setup
	stack, err := b.stack()
	if err != nil {
		return err
	}
	all = append(all, stack)
	leases, err := b.bootlabWithLeases(100_000)
	if err != nil {
		return err
	}
	all = append(all, leases)
	for _, hosts := range []int{10, 1000, 10000} {
		c, err := b.bootlab(hosts)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	for _, c := range all {
		if c.prepare == nil {
			continue
		}
		if err := c.prepared(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	ready, memory := make([]sample, len(all)), make([]sample, len(all))
	for range b.rounds {
		for i, c := range all {
			took, rss, err := c.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			ready[i] = append(ready[i], took.Seconds()*1000)
			memory[i] = append(memory[i], float64(rss)/(1<<20))
		}
	}
	fmt.Printf("\n| | start to ready, ms | resident, MiB |\n|---|---|---|\n")
	for i, c := range all {
		fmt.Printf("| %s | %s | %s |\n", c.name, ready[i], memory[i])
	}
	return nil
}

// prepared runs the setup once, and prepares it.
func (c setup) prepared(ctx context.Context) error {
	running, err := c.start(ctx)
	defer stop(running)
	if err != nil {
		return err
	}
	if err := c.answers(ctx); err != nil {
		return err
	}
	return c.prepare(ctx)
}

// answers waits until every port answers.
func (c setup) answers(ctx context.Context) error {
	for _, p := range c.ports {
		if err := until(ctx, 20*time.Second, p.answers); err != nil {
			return fmt.Errorf("%s %s: %w", p.network, p.addr, err)
		}
	}
	return nil
}

// measure starts the setup, waits until it is ready, lets it settle, and stops it.
func (c setup) measure(ctx context.Context) (ready time.Duration, rss int64, err error) {
	start := time.Now()
	running, err := c.start(ctx)
	defer stop(running)
	if err != nil {
		return 0, 0, err
	}
	if err := c.answers(ctx); err != nil {
		return 0, 0, err
	}
	ready = time.Since(start)
	time.Sleep(time.Second)
	for _, cmd := range running {
		rss += residentOf(cmd.Process.Pid)
	}
	return ready, rss, nil
}

func (c setup) start(ctx context.Context) (running []*exec.Cmd, err error) {
	for _, args := range c.commands {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return running, err
		}
		running = append(running, cmd)
	}
	return running, nil
}

func stop(running []*exec.Cmd) {
	for _, cmd := range running {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range running {
		timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
	}
}

func (p port) answers() bool {
	c, err := net.DialTimeout(p.network, p.addr, 100*time.Millisecond)
	if err != nil {
		return false
	}
	defer c.Close()
	if p.question == nil {
		return true
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Write(p.question); err != nil {
		return false
	}
	if p.addr[strings.LastIndex(p.addr, ":"):] == ":69" {
		return answersElsewhere(p)
	}
	_, err = c.Read(make([]byte, 512))
	return err == nil
}

// answersElsewhere asks a TFTP server, which answers from another port (RFC 1350), so that a connected socket is deaf.
func answersElsewhere(p port) bool {
	c, err := net.ListenPacket("udp", "10.0.0.1:0")
	if err != nil {
		return false
	}
	defer c.Close()
	to, err := net.ResolveUDPAddr("udp", p.addr)
	if err != nil {
		return false
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.WriteTo(p.question, to); err != nil {
		return false
	}
	_, _, err = c.ReadFrom(make([]byte, 512))
	return err == nil
}

// residentOf sums the resident memory of a process and its children, in bytes.
func residentOf(pid int) int64 {
	total := resident(pid)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return total
	}
	for _, field := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			total += residentOf(child)
		}
	}
	return total
}

func resident(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}
