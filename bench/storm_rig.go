package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/test/support/bootload"
)

// A stormRig is the rig of DHCP with an address for each machine on the load's side, and files to boot from.
type stormRig struct {
	*rig
	machines int
	files    string // all candidates serve these
	program  string // the folder of the network boot program
}

// stormSubnet is the subnet of all machines.
const stormSubnet = "10.70.0.0/16"

// stormMachine is the n-th machine.
func stormMachine(n int) bootload.Machine {
	return bootload.Machine{
		MAC:  fmt.Sprintf("52:54:00:5a:%02x:%02x", n>>8, n&255),
		Addr: netip.AddrFrom4([4]byte{10, 70, byte(n >> 8), byte(n)}),
	}
}

func (s *stormRig) config() bootload.Config {
	c := bootload.Config{
		Server: netip.MustParseAddr(dhcpAddress), Relay: netip.MustParseAddr(relays()[0]), Limit: stormLimit,
		Sizes: bootload.Sizes{Program: stormProgram, Kernel: stormKernel, Initrd: stormInitrd},
	}
	for n := range s.machines {
		c.Machines = append(c.Machines, stormMachine(n+1))
	}
	return c
}

// lay gives the load's side all addresses, and makes the files.
func (s *stormRig) lay(ctx context.Context) error {
	var batch strings.Builder
	for _, m := range s.config().Machines {
		fmt.Fprintf(&batch, "addr add %s/32 dev relay0\n", m.Addr)
	}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("give every machine its address: %w: %s", err, out)
	}
	// The machines have no MACs on the wire: for the server they are behind the relay.
	if err := ip(ctx, [][]string{{"-n", serverSpace, "route", "add", stormSubnet, "via", relays()[0]}}); err != nil {
		return err
	}
	s.files, s.program = filepath.Join(s.dir, "files"), filepath.Join(s.dir, "program")
	for path, size := range map[string]int{
		filepath.Join(s.program, "ipxe.efi"):       stormProgram,
		filepath.Join(s.files, "images", "kernel"): stormKernel,
		filepath.Join(s.files, "images", "initrd"): stormInitrd,
	} {
		if err := writeNoise(path, size); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(s.files, "node.cfg"), []byte("name={{.Host.Name}}\naddress={{.Host.IP}}\n"), 0o644)
}

// writeNoise makes a file that is in the page cache afterwards.
func writeNoise(path string, size int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return os.WriteFile(path, b, 0o644)
}

// A stormContender serves the whole chain.
type stormContender struct {
	candidate
	commands func(s *stormRig, dir string) ([][]string, error)
}

func stormServers() []*stormContender {
	return []*stormContender{
		{candidate{name: bootlabName}, func(s *stormRig, dir string) ([][]string, error) { return s.bootlab(dir, s.machines) }},
		{candidate{name: "bootlab-10k"}, func(s *stormRig, dir string) ([][]string, error) { return s.bootlab(dir, 10_000) }},
		{candidate{name: "dnsmasq+nginx", program: "nginx"}, (*stormRig).dnsmasqNginx},
	}
}

// bootlab knows so many machines, of which those of the rack are the first.
func (s *stormRig) bootlab(dir string, hosts int) ([][]string, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `version: 1
lab: storm
domain: test
appliance: {state: state, admin_socket: admin.sock, files: %q, user: root}
networks:
  n: {subnet: %s, address: %s, pools: {guests: {range: %s-%s}}}
profiles:
  node: {kernel: images/kernel, initrd: [images/initrd], args: ["config={{.ConfigURL}}", "done={{.DoneURL}}"], config: node.cfg, install_to: /dev/vda}
hosts:
`, s.files, dhcpSubnet, dhcpAddress, poolFirst, poolLast)
	for n := range hosts {
		m := stormMachine(n + 1)
		fmt.Fprintf(&b, "  node-%d: {mac: %q, ip: %s, profile: node}\n", n+1, m.MAC, m.Addr)
	}
	path := filepath.Join(dir, "lab.yaml")
	return [][]string{{s.binary, "serve", "--lab", path, "--firmware", s.program}}, os.WriteFile(path, b.Bytes(), 0o644)
}

// dnsmasqNginx is what people write by hand: a dhcp-host line and two files for every machine. iPXE puts its MAC into the URL.
func (s *stormRig) dnsmasqNginx(dir string) ([][]string, error) {
	var hosts strings.Builder
	for _, m := range s.config().Machines {
		mac := strings.ReplaceAll(m.MAC, ":", "-")
		fmt.Fprintf(&hosts, "%s,%s\n", m.MAC, m.Addr)
		base := "http://" + dhcpAddress + ":8080"
		script := fmt.Sprintf("#!ipxe\nkernel %s/images/kernel initrd=initrd config=%s/machines/%s.cfg done=%s/done/%s\ninitrd %s/images/initrd\nboot\n", base, base, mac, base, mac, base)
		for ending, text := range map[string]string{"ipxe": script, "cfg": "address=" + m.Addr.String() + "\n"} {
			path := filepath.Join(s.files, "machines", mac+"."+ending)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
	}
	nginx := fmt.Sprintf(`daemon off; user root; worker_processes 1; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events { worker_connections 2048; }
http { sendfile on; tcp_nopush on; access_log %[1]s/access.log;
 server { listen %[2]s:8080 backlog=4096; root %[3]s; location /done/ { return 200 "ok\n"; } } }
`, dir, dhcpAddress, s.files)
	conf, list := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "hosts")
	if err := os.WriteFile(list, []byte(hosts.String()), 0o644); err != nil {
		return nil, err
	}
	args, _, err := dnsmasqDHCP("", dir, serverOptions{lease: 12 * time.Hour})
	args = append(args, "--dhcp-hostsfile="+list, "--enable-tftp", "--tftp-root="+s.program, "--tftp-max=1000", "--dhcp-no-override",
		"--dhcp-match=set:ipxe,175", "--dhcp-boot=tag:!ipxe,ipxe.efi,,"+dhcpAddress,
		"--dhcp-boot=tag:ipxe,http://"+dhcpAddress+":8080/machines/${net0/mac:hexhyp}.ipxe")
	if err != nil {
		return nil, err
	}
	return [][]string{args, {"nginx", "-c", conf}}, os.WriteFile(conf, []byte(nginx), 0o644)
}

// start starts a candidate on its one CPU and waits until it gives addresses and serves files.
func (s *stormRig) start(ctx context.Context, c *stormContender) (running []*process, err error) {
	dir, err := s.scratch(c.name)
	if err != nil {
		return nil, err
	}
	commands, err := c.commands(s, dir)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	for _, args := range commands {
		p := &process{}
		if err := p.begin(pinned(s.cpus[0]), serverSpace, args, nil, log); err != nil {
			return running, err
		}
		running = append(running, p)
	}
	if err := s.ready(ctx); err != nil {
		text, _ := os.ReadFile(log)
		return running, fmt.Errorf("%s: %w: %.600s", c.name, err, text)
	}
	return running, nil
}

func (s *stormRig) ready(ctx context.Context) error {
	if err := s.load.reset(ctx); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Second, port{"tcp", dhcpAddress + ":8080", nil}.answers); err != nil {
		return fmt.Errorf("HTTP: %w", err)
	}
	ok, err := s.load.answers(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("gives no address")
	}
	return err
}

// tree returns the processes that were started, and their children.
func tree(running []*process) (pids []int) {
	for _, p := range running {
		pids = append(pids, p.cmd.Process.Pid)
	}
	for i := 0; i < len(pids); i++ {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pids[i], pids[i]))
		for _, field := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// memory sums a line of /proc/PID/status, in MiB.
func memory(pids []int, line string) (mib float64) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for l := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(l, line+":"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				mib += kib / 1024
			}
		}
	}
	return mib
}

// cpuOf sums the CPU time of processes.
func cpuOf(pids []int) (total time.Duration) {
	for _, pid := range pids {
		total += cpuTime(pid)
	}
	return total
}
