package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bootlab/bootlab/bench/dhcpload"
)

// The network that all candidates serve, through a relay: its machines are never seen on the wire between.
const (
	dhcpSubnet  = "10.64.0.0/12"
	dhcpMask    = "255.240.0.0"
	dhcpAddress = "10.64.0.1"
	poolFirst   = "10.65.0.0"
	poolLast    = "10.68.255.255"
	poolSize    = 4 << 16
	serverNIC   = "dhcp0"
)

// relays are the load's addresses in that network: answers come to them.
func relays() []string { return []string{"10.64.0.2", "10.64.0.3", "10.64.0.4", "10.64.0.5"} }

// A dhcpServer is a candidate. It is started in an empty folder, in which it keeps all that it writes.
type dhcpServer struct {
	candidate
	lazy   bool // it stores no renewal early in a lease
	args   func(binary, dir string, o serverOptions) (args, env []string, err error)
	leases func(ctx context.Context, r *rig, dir string) (map[string]netip.Addr, error) // by MAC; nil: cannot tell
}

// fakeCommand is the argument that makes this program a server without state: its rate is the most that the load can measure.
const fakeCommand = "dhcp-fake"

func fakeDHCP(string, string, serverOptions) (args, env []string, err error) {
	self, err := os.Executable()
	return []string{self, fakeCommand}, nil, err
}

func runFake(ctx context.Context) error {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 67})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return dhcpload.Fake(conn, netip.MustParseAddr(dhcpAddress), netip.MustParseAddr(poolFirst))
}

// serverOptions are what differs between tests.
type serverOptions struct {
	lease time.Duration
	last  string // the last address of the pool; empty: poolLast
	probe bool   // other servers probe an address before they offer it, which is their default
	quiet bool   // servers log errors only
}

func (o serverOptions) poolLast() string { return cmp.Or(o.last, poolLast) }

func (o serverOptions) seconds() int { return int(o.lease / time.Second) }

// dhcpServers are all candidates, bootlab first: the others are compared with it.
func dhcpServers() []*dhcpServer {
	return []*dhcpServer{
		{candidate: candidate{name: bootlabName}, lazy: true, args: bootlabDHCP, leases: bootlabLeases},
		{candidate: candidate{name: "kea", program: "kea-dhcp4"}, args: keaDHCP},
		{candidate: candidate{name: "isc", program: "dhcpd"}, lazy: true, args: iscDHCP},
		{candidate: candidate{name: "dnsmasq", program: "dnsmasq"}, args: dnsmasqDHCP},
		{candidate: candidate{name: "fake", program: "taskset", optional: true}, args: fakeDHCP},
	}
}

func bootlabDHCP(binary, dir string, o serverOptions) (args, env []string, err error) {
	text := fmt.Sprintf(`version: 1
lab: bench
domain: test
appliance: {state: state, admin_socket: admin.sock, user: root, http: "127.0.0.1:8080", tftp: "127.0.0.1:69", dns: "127.0.0.1:53"}
networks:
  n: {subnet: %s, address: %s, lease: %ds, pools: {guests: {range: %s-%s}}}
`, dhcpSubnet, dhcpAddress, o.seconds(), poolFirst, o.poolLast())
	path := filepath.Join(dir, "lab.yaml")
	args = []string{binary, "serve", "--lab", path}
	if o.quiet {
		args = append(args, "--log-level", "warn")
	}
	return args, nil, os.WriteFile(path, []byte(text), 0o644)
}

func bootlabLeases(ctx context.Context, r *rig, dir string) (map[string]netip.Addr, error) {
	out, err := exec.CommandContext(ctx, r.binary, "leases", "--json", "--lab", filepath.Join(dir, "lab.yaml")).Output()
	if err != nil {
		return nil, fmt.Errorf("bootlab leases: %w", err)
	}
	var leases []struct {
		IP  netip.Addr `json:"ip"`
		MAC string     `json:"mac"`
	}
	if err := json.Unmarshal(out, &leases); err != nil {
		return nil, fmt.Errorf("bootlab leases: %w", err)
	}
	byMAC := make(map[string]netip.Addr, len(leases))
	for _, l := range leases {
		byMAC[l.MAC] = l.IP
	}
	return byMAC, nil
}

// keaDHCP is Debian's own configuration file, cut to what matters here: memfile, kept on disk, information logged.
func keaDHCP(_, dir string, o serverOptions) (args, env []string, err error) {
	severity := "INFO"
	if o.quiet {
		severity = "WARN"
	}
	text := fmt.Sprintf(`{"Dhcp4": {
 "interfaces-config": {"interfaces": [%q]},
 "lease-database": {"type": "memfile", "persist": true, "name": %q, "lfc-interval": 3600},
 "valid-lifetime": %d,
 "subnet4": [{"subnet": %q, "pools": [{"pool": "%s - %s"}]}],
 "loggers": [{"name": "kea-dhcp4", "severity": %q, "output_options": [{"output": %q}]}]}}
`, serverNIC, filepath.Join(dir, "leases.csv"), o.seconds(), dhcpSubnet, poolFirst, o.poolLast(), severity, filepath.Join(dir, "kea.log"))
	path := filepath.Join(dir, "kea.conf")
	return []string{"kea-dhcp4", "-c", path}, []string{"KEA_PIDFILE_DIR=" + dir, "KEA_LOCKFILE_DIR=" + dir},
		os.WriteFile(path, []byte(text), 0o644)
}

// iscPoolLast makes ISC dhcpd's pool a quarter of the others': it keeps free addresses in a sorted list that it walks for each
// lease, and with all of them it gave 20 a second.
const iscPoolLast = "10.65.255.255"

func iscDHCP(_, dir string, o serverOptions) (args, env []string, err error) {
	text := fmt.Sprintf("authoritative;\ndefault-lease-time %[1]d;\nmax-lease-time %[1]d;\nmin-lease-time %[1]d;\nping-check %[2]t;\nsubnet %[3]s netmask %[4]s { range %[5]s %[6]s; }\n",
		o.seconds(), o.probe, strings.TrimSuffix(dhcpSubnet, "/12"), dhcpMask, poolFirst, cmp.Or(o.last, iscPoolLast))
	conf, leases := filepath.Join(dir, "dhcpd.conf"), filepath.Join(dir, "dhcpd.leases")
	if _, err := os.Stat(leases); err != nil { // dhcpd insists on it
		if err := os.WriteFile(leases, nil, 0o644); err != nil {
			return nil, nil, err
		}
	}
	where := "-d" // to standard error
	if o.quiet {
		where = "-f" // to syslog, which does not run here
	}
	return []string{"dhcpd", "-4", where, "-cf", conf, "-lf", leases, "-pf", filepath.Join(dir, "dhcpd.pid"), serverNIC}, nil,
		os.WriteFile(conf, []byte(text), 0o644)
}

// dnsmasqShortest is the shortest lease that dnsmasq gives.
const dnsmasqShortest = 2 * time.Minute

func dnsmasqDHCP(_, dir string, o serverOptions) (args, env []string, err error) {
	args = []string{
		"dnsmasq", "-k", "-C", "/dev/null", "--user=root", "--pid-file=", "--port=0", "--interface=" + serverNIC, "--dhcp-authoritative",
		fmt.Sprintf("--dhcp-range=%s,%s,%s,%d", poolFirst, o.poolLast(), dhcpMask, int(max(o.lease, dnsmasqShortest).Seconds())),
		fmt.Sprintf("--dhcp-lease-max=%d", poolSize), "--dhcp-leasefile=" + filepath.Join(dir, "dnsmasq.leases"),
		"--log-facility=" + filepath.Join(dir, "dnsmasq.log"),
	}
	if !o.probe {
		args = append(args, "--no-ping")
	}
	if o.quiet {
		args = append(args, "--quiet-dhcp")
	}
	return args, nil, nil
}
