package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/dnsprobe"
)

// files says which files the lab names and the daemon cannot use.
func files(_ context.Context, m *Machine) (all []Finding) {
	for _, w := range m.Warnings {
		if w.Path != "" {
			all = append(all, warn(w.Path, strings.TrimPrefix(w.Message, w.Path+": "), ""))
		}
	}
	u := account(m.Lab.Appliance.User)
	for _, p := range m.Lab.Profiles {
		for _, path := range p.Paths() {
			if strings.Contains(path.Text, "{{") {
				continue
			}
			name := filepath.Join(m.Lab.Appliance.Files, filepath.FromSlash(path.Text))
			if err := u.may(name, 4); err != nil && !errors.Is(err, os.ErrNotExist) {
				all = append(all, fail(name, fmt.Sprintf("%s cannot read it: %v", u.name, err), "chmod o+r, and o+x for its folders; or change the group"))
			}
		}
	}
	if len(all) == 0 {
		return []Finding{ok(m.Lab.Appliance.Files, "all files that the lab names can be read")}
	}
	return all
}

// A person is the user that the daemon becomes.
type person struct {
	name     string
	uid      uint32
	gids     map[uint32]bool
	anything bool // root
}

func account(name string) person {
	if name == "" {
		name = "bootlab"
	}
	u, err := user.Lookup(name)
	if err != nil || u.Uid == "0" {
		return person{name: "root", anything: true}
	}
	p := person{name: name, uid: number(u.Uid), gids: map[uint32]bool{number(u.Gid): true}}
	ids, _ := u.GroupIds() // without the others the answer is the stricter one
	for _, id := range ids {
		p.gids[number(id)] = true
	}
	return p
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// may returns an error if the person has not all of the permissions (4 to read, 2 to write) of a file, or may not enter its folders.
func (p person) may(name string, permissions uint32) error {
	if p.anything {
		_, err := os.Stat(name)
		return err
	}
	for at, need := name, permissions; ; at, need = filepath.Dir(at), 1 {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		stat, isUnix := info.Sys().(*syscall.Stat_t)
		if !isUnix {
			return nil
		}
		mode := uint32(info.Mode().Perm())
		switch {
		case stat.Uid == p.uid:
			mode >>= 6
		case p.gids[stat.Gid]:
			mode >>= 3
		}
		if mode&need != need {
			return fmt.Errorf("%s is %s of user %d and group %d", at, info.Mode(), stat.Uid, stat.Gid)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// Limits of the state folder's disk.
const (
	littleSpace = 1 << 30
	slowSync    = 100 * time.Millisecond
)

// state looks at the folder of learned state: whether the daemon may write there, the space, and how long a write takes to be on disk.
func state(_ context.Context, m *Machine) []Finding {
	dir := m.Lab.Appliance.State
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return []Finding{ok(dir, "is made at the first start")}
	case err != nil:
		return []Finding{fail(dir, err.Error(), "")}
	case !info.IsDir():
		return []Finding{fail(dir, "is no folder", "move it away, or set appliance.state")}
	}
	u := account(m.Lab.Appliance.User)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return []Finding{fail(dir, err.Error(), "")}
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return []Finding{fail(dir, "its file system is read-only: no lease can be stored, so no machine gets an address", "mount -o remount,rw, or set appliance.state")}
	}
	if err := u.may(dir, 2|1); err != nil && os.Geteuid() != 0 {
		return []Finding{fail(dir, fmt.Sprintf("%s cannot write: %v", u.name, err), "chown -R "+u.name+" "+dir)}
	}
	return []Finding{space(dir, int64(fs.Bavail)*fs.Bsize, m.NoSpace), syncTime(dir)}
}

func space(dir string, free, none int64) Finding {
	text := fmt.Sprintf("%d MiB free", free>>20)
	switch {
	case free < none:
		return fail(dir, text+": too little for the daemon's state", "free some space")
	case free < littleSpace:
		return warn(dir, text, "free some space: images and caches need more")
	}
	return ok(dir, text)
}

// syncTime measures one synced write to a file without a name, which nothing sees and nothing keeps.
func syncTime(dir string) Finding {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return ok(dir, "the time of a synced write is not measured: the file system has no files without names")
	}
	if err != nil {
		return warn(dir, "the time of a synced write is not measured: "+err.Error(), "run bootlab doctor as root")
	}
	defer func() { _ = unix.Close(fd) }()
	began := time.Now()
	if _, err = unix.Write(fd, make([]byte, 4096)); err == nil {
		err = unix.Fdatasync(fd)
	}
	took := time.Since(began)
	switch {
	case err != nil:
		return fail(dir, "a write cannot be synced: "+err.Error(), "look at the disk")
	case took > slowSync:
		return warn(dir, fmt.Sprintf("a synced write took %v: each lease waits for one", took.Round(time.Millisecond)), "a faster disk for appliance.state")
	}
	return ok(dir, fmt.Sprintf("a synced write took %v", took.Round(time.Microsecond)))
}

// clock asks the kernel whether the system clock follows a time source.
func clock(context.Context, *Machine) []Finding {
	var t unix.Timex // mode 0: nothing is set
	switch _, err := unix.Adjtimex(&t); {
	case err != nil:
		return []Finding{warn("system clock", "the kernel does not say whether it is synchronized: "+err.Error(), "")}
	case t.Status&unix.STA_UNSYNC != 0:
		return []Finding{warn("system clock", "is not synchronized: certificates of machines and clusters may be refused", "start chrony or systemd-timesyncd")}
	}
	return []Finding{ok("system clock", "is synchronized")}
}

// upstreams asks each forwarder one question.
func upstreams(ctx context.Context, m *Machine) (all []Finding) {
	for _, s := range m.Lab.DNS.Forward {
		switch {
		case s.File != "":
			if _, err := os.Stat(s.File); err != nil {
				all = append(all, fail(s.File, err.Error(), "set dns.forward"))
			}
		case s.TLS != "":
			all = append(all, reachable(ctx, "tcp", s.Addr.String(), "takes connections (DNS over TLS)"))
		default:
			all = append(all, upstream(ctx, s.Addr))
		}
	}
	return all
}

// upstreamWait is how long a forwarder may take for its answer, of three questions.
const upstreamWait = 6 * time.Second

func upstream(ctx context.Context, server netip.AddrPort) Finding {
	ctx, cancel := context.WithTimeout(ctx, upstreamWait)
	defer cancel()
	if err := dnsprobe.Ask(ctx, server, "", upstreamWait); err != nil {
		return fail(server.String(), fmt.Sprintf("does not answer questions: %v", err), "set dns.forward to servers that this machine may ask, or look at the firewall")
	}
	return ok(server.String(), "answers")
}

// reachable connects and closes.
func reachable(ctx context.Context, network, address, good string) Finding {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return fail(address, "cannot be reached: "+err.Error(), "look at its address, its service and firewalls")
	}
	_ = c.Close()
	return ok(address, good)
}

// libvirtPorts are the ports of libvirt's transports.
var libvirtPorts = map[string]string{"ssh": "22", "libssh": "22", "libssh2": "22", "tcp": "16509", "tls": "16514", "": "16514"}

// hypervisors connects to what libvirt would connect to. It opens no hypervisor.
func hypervisors(ctx context.Context, m *Machine) (all []Finding) {
	for _, h := range m.Lab.Hypervisors {
		u, err := url.Parse(h.URI)
		if err != nil {
			all = append(all, fail(h.Name, err.Error(), "set hypervisors."+h.Name+".uri"))
			continue
		}
		f := local(ctx, u)
		if u.Hostname() != "" {
			_, transport, _ := strings.Cut(u.Scheme, "+")
			port := u.Port()
			if port == "" {
				port = libvirtPorts[transport]
			}
			f = reachable(ctx, "tcp", net.JoinHostPort(u.Hostname(), port), "takes connections")
		}
		f.Subject = h.Name
		all = append(all, f)
	}
	return all
}

// local connects to the socket of libvirt on this machine.
func local(ctx context.Context, u *url.URL) Finding {
	if u.Scheme == "test" {
		return ok("", "needs no daemon")
	}
	var f Finding
	for _, socket := range []string{u.Query().Get("socket"), "/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"} {
		if socket == "" {
			continue
		}
		if f = reachable(ctx, "unix", socket, "takes connections"); f.Level == OK {
			break
		}
	}
	return f
}
