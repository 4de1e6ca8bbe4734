package portowner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Process is one that holds a port.
type Process struct {
	PID     int
	Command string // as the kernel knows it: at most 15 bytes
}

// An InUse is EADDRINUSE with the name of the process that holds the port.
type InUse struct {
	Address string // and port, of the call that failed
	By      string // "by NAME (pid 123)"
	Fix     string // what to do about it; empty: By says how to find the process
	Holders []Process
	err     error
	on      string // "listen udp :53"
}

// Error names the process that holds the port and what to do.
func (e *InUse) Error() string {
	text := e.on + ": address already in use " + e.By
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// Unwrap returns the error of the listen call.
func (e *InUse) Unwrap() error { return e.err }

// Explain adds to an error of net.Listen or net.ListenPacket which process holds the port, and how to free it: an *InUse. network and
// address are those of the call; without an address, which is for one of several ports, err has it. key is what to change for another
// address. An error that is not EADDRINUSE is returned unchanged.
func Explain(err error, network, address, key string) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && address == "" && op.Addr != nil {
		address = op.Addr.String()
	}
	e := &InUse{Address: address, err: err, on: "listen " + network + " " + address}
	holders := Holders(network, address)
	if e.Holders = holders; len(holders) == 0 {
		e.By = "by another process (sudo ss -lptun shows which)"
		if !seesAll() {
			e.By = "by another process, which only root sees (sudo bootlab doctor names it)"
		}
		return e
	}
	var names []string
	for _, p := range holders {
		names = append(names, fmt.Sprintf("%s (pid %d)", p.Command, p.PID))
	}
	e.By, e.Fix = "by "+strings.Join(names, ", "), remedy(holders[0], key)
	return e
}

// seesAll reports whether this process may look at all others: root may, with its capabilities and unless it is confined.
func seesAll() bool {
	folders, _ := filepath.Glob("/proc/[0-9]*/cwd") // the only error is a bad pattern
	return !slices.ContainsFunc(folders, func(name string) bool {
		_, err := os.Readlink(name)
		return errors.Is(err, fs.ErrPermission)
	})
}

// remedy returns how to free a port from who holds it.
func remedy(p Process, key string) string {
	switch p.Command {
	case "systemd-resolve":
		return "set appliance.dns to \":53\", the lab's own addresses and loopback, or set DNSStubListener=no in /etc/systemd/resolved.conf and restart systemd-resolved"
	case "dnsmasq":
		return dnsmasqRemedy(p)
	case "in.tftpd", "atftpd":
		return "stop it (systemctl disable --now tftpd-hpa, or atftpd); its files can be served from appliance.files"
	case "dhcpd", "kea-dhcp4":
		return "stop it; docs/dhcp-migration.md explains how to move its configuration"
	case "docker-proxy", "rootlessport":
		return "it publishes a port of a container; stop the container, or set another port or address here"
	case "named", "unbound", "knotd", "kresd", "pdns_server", "pdns_recursor", "coredns", "nginx", "apache2", "httpd", "haproxy", "caddy":
		return "give it other addresses or another port, or list addresses here that it leaves free"
	case "bootlab":
		return otherBootlab(p, key)
	}
	return "stop that program, or change " + key
}

// otherBootlab names the lab file of another bootlab, if its command line does.
func otherBootlab(p Process, key string) string {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	words, file := strings.Split(string(cmdline), "\x00"), ""
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "--lab="):
			file = strings.TrimPrefix(w, "--lab=")
		case w == "--lab" && i+1 < len(words):
			file = words[i+1]
		}
	}
	if file != "" {
		file = fmt.Sprintf(" with lab file %q", file)
	}
	return fmt.Sprintf("bootlab is already running%s: stop it (systemctl stop bootlab, or kill %d), or change %s", file, p.PID, key)
}

// dnsmasqRemedy distinguishes who started a dnsmasq.
func dnsmasqRemedy(p Process) string {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	switch text := string(cmdline); {
	case strings.Contains(text, "libvirt"):
		return "it serves a libvirt network; remove <dns> and <dhcp> from that network, or list addresses here without that of its bridge"
	case strings.Contains(text, "NetworkManager"):
		return "NetworkManager runs it; set dns=default in /etc/NetworkManager/NetworkManager.conf and restart NetworkManager, or list addresses here that it leaves free"
	case strings.Contains(text, "lxd"), strings.Contains(text, "incus"), strings.Contains(text, "lxc"):
		return "it serves a network of containers; list addresses here without that of its bridge"
	}
	return "stop it; docs/dhcp-migration.md explains how to move its configuration"
}

// Holders returns the processes that have a socket on the port of address, as far as this process may see: all for root,
// its user's otherwise. network is tcp or udp, with or without 4 or 6.
func Holders(network, address string) []Process {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	number, err := net.LookupPort(strings.TrimRight(network, "46"), port)
	if err != nil {
		return nil
	}
	want, _ := netip.ParseAddr(hostOf(address)) // a name, or none: any address
	var inodes []string
	for _, table := range []string{strings.TrimRight(network, "46"), strings.TrimRight(network, "46") + "6"} {
		b, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue
		}
		inodes = append(inodes, sockets(string(b), want, uint16(number))...)
	}
	return owners(inodes)
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

const listening = "0A" // TCP_LISTEN in the kernel's tcp_states.h; UDP sockets are all 07

// sockets returns the inodes of the sockets in a table of /proc/net that conflict with one on addr and port.
func sockets(table string, addr netip.Addr, port uint16) (inodes []string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening && f[3] != "07" {
			continue
		}
		local, ok := parseLocal(f[1])
		if !ok || local.Port() != port {
			continue
		}
		a := local.Addr().Unmap()
		if !addr.IsValid() || addr.IsUnspecified() || a.IsUnspecified() || a == addr.Unmap() {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}

// parseLocal reads "0100007F:0035": 32-bit words in native byte order, then the port.
func parseLocal(s string) (netip.AddrPort, bool) {
	words, port, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var b []byte
	for word := range slices.Chunk([]byte(words), 8) {
		w, err := strconv.ParseUint(string(word), 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(w))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(p)), ok
}

// owners returns the processes that have one of the sockets open, by PID.
func owners(inodes []string) []Process {
	if len(inodes) == 0 {
		return nil
	}
	want := map[string]bool{}
	for _, inode := range inodes {
		want["socket:["+inode+"]"] = true
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the only error is a bad pattern
	found := map[int]Process{}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || !want[target] {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			continue
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		found[pid] = Process{PID: pid, Command: strings.TrimSpace(string(comm))}
	}
	ps := make([]Process, 0, len(found))
	for _, p := range found {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b Process) int { return a.PID - b.PID })
	return ps
}
