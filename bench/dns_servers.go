package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A dnsServer is a candidate. All serve the zones lab.test, c1.test, big.test and the reverse zone, and forward the rest.
type dnsServer struct {
	candidate
	largeFile string // of the large zone
	hosts     bool   // that file is one of hosts
	args      func(binary, dir string) ([]string, error)
	tell      func(s *dnsRunning) error // makes it read the large zone again
}

const (
	dnsHosts   = 250     // of lab.test
	largeNames = 100_000 // of big.test
	labZone    = "lab.test"
	appsZone   = "c1.test"
	bigZone    = "big.test"
	revZone    = "98.10.in-addr.arpa"
)

// dnsServers are all candidates, bootlab first: the others are compared with it.
func dnsServers() []*dnsServer {
	primaries := []string{"mix", "steady", "large"}
	return []*dnsServer{
		{candidate: candidate{name: bootlabName}, largeFile: bigZone + ".zone", args: bootlabDNS, tell: (*dnsRunning).hup},
		{candidate: candidate{name: "knot", program: "knotd", only: primaries}, largeFile: bigZone + ".zone", args: knotDNS, tell: func(s *dnsRunning) error {
			return output(exec.Command("knotc", "-s", filepath.Join(s.dir, "knot.sock"), "zone-reload", bigZone))
		}},
		{candidate: candidate{name: "dnsmasq", program: "dnsmasq"}, largeFile: "big.hosts", hosts: true, args: dnsmasqDNS, tell: (*dnsRunning).hup},
		{candidate: candidate{name: "named", program: "named", optional: true}, largeFile: bigZone + ".zone", args: namedDNS, tell: (*dnsRunning).hup},
	}
}

func (s *dnsRunning) hup() error { return s.cmd.Process.Signal(syscall.SIGHUP) }

func output(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.Args[0], err, out)
	}
	return nil
}

// hostIP is the address of a host of lab.test. The names of forwarded.test and big.test have such addresses too.
func hostIP(i int) string { return fmt.Sprintf("10.98.%d.%d", i/200+4, i%200+1) }

// reverseName is the name of its PTR record.
func reverseName(i int) string { return fmt.Sprintf("%d.%d.%s", i%200+1, i/200+4, revZone) }

// appsRecords are those of c1.test, as zone-file lines.
var appsRecords = []string{"*.apps 300 A 10.98.0.10", "_etcd-server-ssl._tcp 300 SRV 0 10 2380 etcd-0", "_etcd-server-ssl._tcp 300 SRV 0 10 2380 etcd-1",
	"etcd-0 300 A 10.98.4.1", "etcd-1 300 A 10.98.4.2", "ns 300 A " + dnsAddr}

const zoneHead = "$TTL 300\n@ SOA ns.c1.test. hostmaster.c1.test. %d 3600 900 604800 300\n@ NS ns.c1.test.\n"

// largeZone is big.test with so many names.
func largeZone(names int) string {
	var b strings.Builder
	fmt.Fprintf(&b, zoneHead, names)
	for i := range names {
		fmt.Fprintf(&b, "n%d A %s\n", i, hostIP(i%dnsHosts))
	}
	return b.String()
}

// largeHosts is the same in the format of hosts(5).
func largeHosts(names int) string {
	var b strings.Builder
	for i := range names {
		fmt.Fprintf(&b, "%s n%d.%s\n", hostIP(i%dnsHosts), i, bigZone)
	}
	return b.String()
}

// zoneFiles writes the zones but the large one for servers that take files.
func zoneFiles(dir string) error {
	head := fmt.Sprintf(zoneHead, 1)
	var hosts, reverse strings.Builder
	hosts.WriteString(head)
	reverse.WriteString(head)
	for i := range dnsHosts {
		fmt.Fprintf(&hosts, "h%d A %s\n", i, hostIP(i))
		fmt.Fprintf(&reverse, "%s. PTR h%d.%s.\n", reverseName(i), i, labZone)
	}
	for zone, text := range map[string]string{labZone: hosts.String(), revZone: reverse.String(), appsZone: head + strings.Join(appsRecords, "\n") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, zone+".zone"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func bootlabDNS(binary, dir string) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `version: 1
lab: bench
domain: %s
appliance: {state: state, admin_socket: admin.sock, user: root, files: ., addresses: off, http: "127.0.0.1:80", tftp: "127.0.0.1:69", dns: "%s:53"}
networks: {n: {subnet: 10.98.0.0/16, address: %s, dhcp: off}}
dns:
  forward: [%s]
  zones:
    %s: {records: ["%s"]}
    %s: {file: %s.zone}
hosts:
`, labZone, dnsAddr, dnsAddr, dnsLoadAddr, appsZone, strings.Join(appsRecords, `", "`), bigZone, bigZone)
	for i := range dnsHosts {
		fmt.Fprintf(&b, "  h%d: {mac: \"52:54:00:00:%02x:%02x\", ip: %s}\n", i, i/256, i%256, hostIP(i))
	}
	path := filepath.Join(dir, "lab.yaml")
	return []string{binary, "serve", "--log-level", "warn", "--lab", path}, os.WriteFile(path, []byte(b.String()), 0o644)
}

// knotDNS is Knot with one worker for the one CPU, and otherwise its defaults.
func knotDNS(_, dir string) ([]string, error) {
	if err := zoneFiles(dir); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`server:
  rundir: %[1]s
  listen: %[2]s@53
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
control:
  listen: %[1]s/knot.sock
database:
  storage: %[1]s/db
template:
- id: default
  storage: %[1]s
  file: "%%s.zone"
  zonefile-sync: -1
  journal-content: none
zone:
- domain: %[3]s
- domain: %[4]s
- domain: %[5]s
- domain: %[6]s
log:
- target: stderr
  any: warning
`, dir, dnsAddr, labZone, appsZone, bigZone, revZone)
	path := filepath.Join(dir, "knot.conf")
	return []string{"knotd", "-c", path}, os.WriteFile(path, []byte(text), 0o644)
}

func dnsmasqDNS(_, dir string) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "keep-in-foreground\nuser=root\npid-file=\nno-hosts\nno-resolv\nbind-interfaces\nlisten-address=%s\nexcept-interface=lo\nserver=%s\nlocal=/%s/%s/%s/%s/\naddress=/apps.%s/10.98.0.10\naddn-hosts=%s/big.hosts\ncache-size=10000\ndns-forward-max=1000\n",
		dnsAddr, dnsLoadAddr, labZone, appsZone, bigZone, revZone, appsZone, dir)
	for i := range dnsHosts {
		fmt.Fprintf(&b, "host-record=h%d.%s,%s\n", i, labZone, hostIP(i))
	}
	for i := range 2 {
		fmt.Fprintf(&b, "srv-host=_etcd-server-ssl._tcp.%s,etcd-%d.%s,2380,0,10\nhost-record=etcd-%d.%s,%s\n", appsZone, i, appsZone, i, appsZone, hostIP(i))
	}
	path := filepath.Join(dir, "dnsmasq.conf")
	return []string{"dnsmasq", "-C", path}, os.WriteFile(path, []byte(b.String()), 0o644)
}

func namedDNS(_, dir string) ([]string, error) {
	if err := zoneFiles(dir); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "options { directory %q; listen-on { %s; }; listen-on-v6 { none; }; pid-file none; session-keyfile none; recursion yes; allow-query "+
		"{ any; }; forward only; forwarders { %s; }; dnssec-validation no; };\ncontrols { };\n",
		dir, dnsAddr, dnsLoadAddr)
	for _, zone := range []string{labZone, appsZone, bigZone, revZone} {
		fmt.Fprintf(&b, "zone %q { type primary; file \"%s.zone\"; };\n", zone, zone)
	}
	path := filepath.Join(dir, "named.conf")
	return []string{"named", "-g", "-n", "1", "-c", path}, os.WriteFile(path, []byte(b.String()), 0o644)
}
