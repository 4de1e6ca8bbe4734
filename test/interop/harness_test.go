package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A labFile is a lab in its own folder, readable for any user, on its own segment.
type labFile struct {
	t    *testing.T
	dir  string
	net  string // the first three bytes of the subnet, as in "10.90.1"
	seg  *netns.Segment
	user string
	ns   string // the namespace that the daemon lives in; empty: the tests' own, see apart

	appliance, lan, networks, profiles, hosts, balancers, more string // lines to add to the sections; lan is network lan's own
}

// newLab writes a lab whose appliance is NET.1, with a pool NET.100 to NET.250 and two machines that can be installed.
func newLab(t *testing.T, subnet string) *labFile {
	t.Helper()
	netns.Need(t, "root", "ip", "curl")
	l := &labFile{t: t, dir: t.TempDir(), net: subnet, seg: netns.NewSegment(t, subnet+".1/24"), user: "nobody"}
	// A bridge without a configured MAC takes the lowest one of its ports.
	var a, b, c byte
	if _, err := fmt.Sscanf(subnet, "%d.%d.%d", &a, &b, &c); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "ip", "link", "set", l.seg.Bridge, "address", fmt.Sprintf("02:b0:%02x:%02x:%02x:01", a, b, c))
	for _, dir := range []string{filepath.Dir(l.dir), l.dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.file("files/images/k", bytes.Repeat([]byte("kernel\n"), 1_000_000))
	l.file("files/images/i", bytes.Repeat([]byte("initrd\n"), 100_000))
	l.file("files/ignition/worker.ign", []byte(`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/secret","contents":{"source":"data:,{{.Host.Vars.secret}}"}}]}}`))
	l.file("files/public/motd", []byte("hello\n"))
	l.write()
	return l
}

// addr returns the address of the appliance.
func (l *labFile) addr() string { return l.net + ".1" }

func (l *labFile) path() string { return filepath.Join(l.dir, "lab.yaml") }

// file writes a file below the lab's folder.
func (l *labFile) file(name string, body []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// write writes the lab file atomically.
func (l *labFile) write() {
	l.t.Helper()
	l.replace(l.text())
}

// replace writes text in place of the lab file.
func (l *labFile) replace(text string) {
	l.t.Helper()
	l.file(".lab.yaml.new", []byte(text))
	if err := os.Rename(filepath.Join(l.dir, ".lab.yaml.new"), l.path()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *labFile) text() string {
	text := `version: 1
lab: interop
domain: lab.test
appliance:
  user: USER
  admin_socket: run/admin.sock
  http: "NET.1:8080"
  tftp: "NET.1:69"
  dns: "NET.1:53"
  admin: "NET.1:9680"
` + state(l.appliance) + l.appliance + `networks:
  lan:
    subnet: NET.0/24
    interface: BRIDGE
    address: NET.1
` + pools(l.lan) + l.lan + l.networks + `profiles:
  install: {os: coreos, kernel: images/k, initrd: [images/i], rootfs: images/i, config: "ignition/{{.Host.Role}}.ign", install_to: /dev/vda}
` + l.profiles + `hosts:
  w0: {mac: "52:54:00:00:00:10", ip: NET.10, role: worker, profile: install, vars: {secret: treasure-of-w0}}
  w1: {mac: "52:54:00:00:00:11", ip: NET.11, role: worker, profile: install, vars: {secret: treasure-of-w1}}
` + l.hosts
	if l.balancers != "" {
		text += "balancers:\n" + l.balancers
	}
	card := l.seg.Bridge
	if l.ns != "" {
		card = "eth0"
	}
	return strings.NewReplacer("NET", l.net, "BRIDGE", card, "USER", l.user).Replace(text + l.more)
}

// apart moves the daemon to its own namespace, where it may bind port 67 of every interface; BRIDGE is eth0 there. The tests'
// namespace keeps NET.254, for requests to its pages.
func (l *labFile) apart() *netns.Client {
	l.t.Helper()
	c := l.seg.NewClient(l.t)
	netns.Run(l.t, "ip", "addr", "flush", "dev", l.seg.Bridge)
	netns.Run(l.t, "ip", "addr", "add", l.net+".254/24", "dev", l.seg.Bridge)
	netns.Run(l.t, "ip", "-n", c.Name, "addr", "add", l.net+".1/24", "dev", "eth0")
	l.ns = c.Name
	l.write()
	return c
}

// pools is the pool for unknown machines, unless the network's lines have one.
func pools(lan string) string {
	if strings.Contains(lan, "pools:") || strings.Contains(lan, "dhcp: proxy") {
		return ""
	}
	return "    pools: {guests: {range: NET.100-NET.250}}\n"
}

// state is the folder of learned state, unless the appliance's lines have one.
func state(appliance string) string {
	if strings.Contains(appliance, "state:") {
		return ""
	}
	return "  state: state\n"
}

// A daemon is a process that serves a lab.
type daemon struct {
	*labFile
	addr   string // of the appliance
	log    *output
	cmd    *exec.Cmd
	ended  chan struct{}
	client *api.Client // by the admin socket
}

// An output is what a process writes.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	shown bool
}

// show logs the end of the output, unless the test has it already.
func (o *output) show(t *testing.T, whose string) {
	t.Helper()
	o.mu.Lock()
	shown := o.shown
	o.shown = true
	o.mu.Unlock()
	if !shown {
		t.Logf("log of %s:\n%s", whose, tail(o.String()))
	}
}

func (o *output) Write(p []byte) (int, error) { o.mu.Lock(); defer o.mu.Unlock(); return o.b.Write(p) }
func (o *output) String() string              { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String() }

// start runs the daemon and waits until it answers. The test ends it. wrap is a command to run it under.
func start(t *testing.T, l *labFile, wrap ...string) *daemon {
	t.Helper()
	d := &daemon{labFile: l, addr: l.net + ".1", log: &output{}}
	var err error
	if d.client, err = api.NewClient(filepath.Join(l.dir, "run", "admin.sock"), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			d.log.show(t, "the daemon")
		}
		if s := d.log.String(); strings.Contains(s, "panic") || strings.Contains(s, "goroutine ") {
			t.Errorf("the daemon panicked:\n%s", tail(s))
		}
	})
	d.start(wrap...)
	return d
}

// tail returns the last lines of a log: few, as the reason of a failure stands before them.
func tail(s string) string { return s[max(0, len(s)-4000):] }

// start runs the daemon, once more if it ended. wrap is a command to run it under.
func (d *daemon) start(wrap ...string) {
	d.t.Helper()
	d.launch(wrap...)
	d.until("the daemon answers", func() bool {
		select {
		case <-d.ended:
			d.log.show(d.t, "the daemon")
			d.t.Fatalf("the daemon ended at once: %v", d.cmd.ProcessState)
		default:
		}
		_, err := d.client.Status(context.Background())
		return err == nil
	})
}

func (d *daemon) launch(wrap ...string) {
	d.t.Helper()
	if d.ns != "" { // ip netns exec would hide the cgroups
		wrap = append([]string{"nsenter", "--net=/run/netns/" + d.ns, "--"}, wrap...)
	}
	args := append(wrap, os.Getenv(binaryVar), "serve", "--log-level", "debug", "--lab", d.path())
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // its state is read later
	}(d.cmd, d.ended)
}

// kill ends the daemon as a power cut does, and waits until nobody has its sockets: a child that was being started has them until it runs
// its program.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", filepath.Join(d.dir, "run", "admin.sock"))
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// exit waits for the end of the process and returns its exit code.
func (d *daemon) exit(within time.Duration) int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(within):
		d.t.Fatalf("the daemon did not end within %v", within)
	}
	return d.cmd.ProcessState.ExitCode()
}

func (d *daemon) alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

func (d *daemon) until(what string, ok func() bool) {
	d.t.Helper()
	waitUntil(d.t, what, ok, d.log)
}

// logged waits until the daemon's log holds text. A line comes through a pipe: it may be read after other signs of what it reports.
func (d *daemon) logged(text string) {
	d.t.Helper()
	d.until(fmt.Sprintf("%q is logged", text), func() bool { return strings.Contains(d.log.String(), text) })
}

// waitUntil waits until ok, or fails the test with the end of the logs.
func waitUntil(t *testing.T, what string, ok func() bool, logs ...*output) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, log := range logs {
				log.show(t, "the process")
			}
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// bootlab runs the command line beside the daemon.
func (d *daemon) bootlab(args ...string) (string, error) {
	out, err := d.command(context.Background(), args...).CombinedOutput()
	return string(out), err
}

// shows waits until what a command prints holds text.
func (d *daemon) shows(text string, args ...string) {
	d.t.Helper()
	d.until(fmt.Sprintf("%q is what bootlab %s prints", text, strings.Join(args, " ")), func() bool {
		out, err := d.bootlab(args...)
		return err == nil && strings.Contains(out, text)
	})
}

func (d *daemon) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, os.Getenv(binaryVar), append(args, "--lab", d.path())...)
}

// terminal runs the command line on a terminal, and types an answer.
func (d *daemon) terminal(answer string, args ...string) string {
	d.t.Helper()
	line := strings.Join(append([]string{os.Getenv(binaryVar)}, append(args, "--lab", d.path())...), " ")
	cmd := exec.Command("script", "-qec", line, "/dev/null")
	cmd.Stdin = strings.NewReader(answer + "\n")
	out, _ := cmd.CombinedOutput() // the exit code is the command's
	return string(out)
}

// status asks the daemon. That the lab starts for the first time, as in most tests, is left out of the warnings.
func (d *daemon) status() api.Status {
	d.t.Helper()
	s, err := d.client.Status(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	s.Warnings = slices.DeleteFunc(s.Warnings, func(w *lab.Problem) bool { return strings.HasPrefix(w.Message, "first start of this lab") })
	return s
}

// reload reloads the lab file.
func (d *daemon) reload() error {
	_, err := d.client.Reload(context.Background(), api.Careful)
	return err
}

// metrics returns the page of metrics.
func (d *daemon) metrics() string {
	d.t.Helper()
	resp, err := http.Get("http://" + d.addr + ":9680/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// metric returns the value of one series, 0 where there is none.
func (d *daemon) metric(series string) float64 {
	d.t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(d.metrics())
	if found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

// A machine is a namespace on the lab's segment.
type machine struct {
	*netns.Client
	d *daemon
}

// machine makes one with that MAC and addresses, which may be none.
func (d *daemon) machine(t *testing.T, mac string, addrs ...string) *machine {
	t.Helper()
	m := d.labFile.machine(t, mac, addrs...)
	m.d = d
	return m
}

// machine makes a machine before the daemon is started.
func (l *labFile) machine(t *testing.T, mac string, addrs ...string) *machine {
	t.Helper()
	m := &machine{Client: l.seg.NewClient(t, mac)}
	for _, a := range addrs {
		netns.Run(t, "ip", "-n", m.Name, "addr", "add", a+"/24", "dev", "eth0")
	}
	return m
}

// run runs a command in the machine and returns what it printed.
func (m *machine) run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	out, err := m.Command(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// get fetches a path of the boot server from an address of the machine; status 0 means no answer.
func (m *machine) get(from, path string, args ...string) (status int, body string) {
	args = append([]string{"-s", "--path-as-is", "-m", "60", "--interface", from, "-w", "\n%{http_code}", "http://" + m.d.addr + ":8080/" + path}, args...)
	out, _ := m.run("curl", args...) // status 000 means no answer
	at := strings.LastIndexByte(out, '\n')
	status, err := strconv.Atoi(out[at+1:])
	if err != nil {
		return 0, out
	}
	return status, out[:max(at, 0)]
}

var configPath = regexp.MustCompile(`config/(\S+)/([A-Z0-9]{20,})/\S+`)

// script fetches a machine's script and returns the path of its document, and that of its "done".
func (m *machine) script(from, mac string) (config, done string, err error) {
	status, body := m.get(from, "boot/"+mac+"/boot.ipxe")
	found := configPath.FindStringSubmatch(body)
	if status != http.StatusOK || found == nil {
		return "", "", fmt.Errorf("script of %s for %s: status %d\n%s", mac, from, status, body)
	}
	return found[0], "done/" + found[1] + "/" + found[2], nil
}

// udhcpcScript configures the leased address.
const udhcpcScript = `#!/bin/sh
case $1 in bound|renew) ip addr flush dev $interface; ip addr add $ip/24 dev $interface; echo "bound $ip";; esac
`

// lease runs udhcpc in the machine and returns the address that it got.
func (m *machine) lease(t *testing.T) string { t.Helper(); return m.leaseOn(t, "eth0") }

func (m *machine) leaseOn(t *testing.T, card string) string {
	t.Helper()
	netns.Need(t, "udhcpc")
	m.d.file("udhcpc.sh", []byte(udhcpcScript))
	script := filepath.Join(m.d.dir, "udhcpc.sh")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	out, _ := m.run("udhcpc", "-i", card, "-n", "-q", "-t", "10", "-T", "2", "-s", script) // no address means no lease
	_, addr, _ := strings.Cut(out, "bound ")
	return strings.TrimSpace(addr)
}
