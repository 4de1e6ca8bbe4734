package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/socket/dnsprobe"
	"github.com/bootlab/bootlab/internal/host/socket/neterror"
	"github.com/bootlab/bootlab/internal/lab"
)

// start says what the steps of a start find.
func start(_ context.Context, m *Machine) []Finding {
	if m.Serving || m.Loss == nil {
		return m.Start
	}
	return slices.Concat(m.Start, m.Loss())
}

// mostKeys is how many keys of the lab file that name a file are shown.
const mostKeys = 5

// files says which files the lab names and the daemon cannot use: each once, with the keys that name it.
func files(_ context.Context, m *Machine) (all []Finding) {
	keys := map[[2]string][]string{}
	for _, w := range m.Warnings {
		if w.Path == "" {
			continue
		}
		of := [2]string{w.Path, strings.TrimPrefix(w.Message, w.Path+": ")}
		if keys[of] == nil {
			all = append(all, warn(of[0], of[1], ""))
		}
		keys[of] = append(keys[of], w.Key)
	}
	for i, f := range all {
		if named := lab.Named(slices.Compact(keys[[2]string{f.Subject, f.Text}]), mostKeys); named != "" { // the lab file does not name what is exposed
			all[i].Text += " (" + named + ")"
		}
	}
	if all = append(all, m.Unread...); len(all) == 0 {
		return []Finding{ok(m.Lab.Appliance.Files, "all files that the lab names can be read")}
	}
	return all
}

// littleSpace is what images and caches need beside the daemon's state.
const littleSpace = 1 << 30

// state looks at the disk of the folder of learned state: whether it can be written, its space, and how long a write takes to be there.
// Whether the daemon may use the folder is a step of its start.
func state(_ context.Context, m *Machine) []Finding {
	dir := m.Lab.Appliance.State
	if m.Serving && len(m.Status.Store.Problems) > 0 { // it reports them; a process that writes to a frozen disk cannot even be killed
		return nil
	}
	all, err := regular.Within(dir, regular.Wait, func() ([]Finding, error) { return disk(dir), nil })
	if err != nil {
		return []Finding{Failed(dir, err)}
	}
	return all
}

// disk is state. It waits for the disk.
func disk(dir string) []Finding {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	d := diskhealth.Stat(dir)
	switch {
	case d.Err != nil:
		return []Finding{fail(dir, d.Err.Error(), "")}
	case d.ReadOnly:
		return []Finding{fail(dir, "its file system is read-only: reservations and renewals are answered, new clients get no address, and no install begins", diskhealth.Advice(dir, syscall.EROFS))}
	}
	return []Finding{space(dir, d), syncTime(dir)}
}

func space(dir string, d diskhealth.Disk) Finding {
	text := fmt.Sprintf("%d MiB free", d.Bytes>>20)
	switch short := d.Shortage(); {
	case short != "":
		return fail(dir, short+": too little for the daemon's state", "free some space")
	case d.Bytes < littleSpace:
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
		return warn(dir, "the time of a synced write is not measured: "+err.Error(), needsRoot)
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
	case took > diskhealth.SlowAlone:
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

// upstreams asks each upstream one question.
func upstreams(ctx context.Context, m *Machine) (all []Finding) {
	for _, s := range m.Lab.DNS.Forward {
		switch {
		case s.File != "":
			all = append(all, resolvConf(ctx, m.Lab, s.File)...)
		case s.TLS != "":
			all = append(all, reachable(ctx, "tcp", s.Addr.String(), "takes connections (DNS over TLS)"))
		default:
			all = append(all, upstream(ctx, s.Addr))
		}
	}
	return all
}

// upstreamWait is how long an upstream may take for its answer, of three questions.
const upstreamWait = 6 * time.Second

func upstream(ctx context.Context, server netip.AddrPort) Finding {
	ctx, cancel := context.WithTimeout(ctx, upstreamWait)
	defer cancel()
	if err := dnsprobe.Ask(ctx, server, "", upstreamWait); err != nil {
		return fail(server.String(), "does not answer questions: "+neterror.Text(err), "set dns.forward to servers that this machine may ask, or look at the firewall")
	}
	return ok(server.String(), "answers")
}

// reachable connects and closes.
func reachable(ctx context.Context, network, address, good string) Finding {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, network, address)
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return warn(address, "was not tried: this user may not open "+address, needsRoot)
	}
	if err != nil {
		return fail(address, "cannot be reached: "+neterror.Text(err), "look at its address, its service and firewalls")
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
		if f = reachable(ctx, "unix", socket, "takes connections"); f.Level != Fail {
			break
		}
	}
	return f
}

// resolvConf asks the servers that a file of dns.forward names, without this appliance itself, all at once.
func resolvConf(ctx context.Context, l *lab.Lab, file string) []Finding {
	text, err := regular.Read(file, regular.Small)
	if err != nil {
		return []Finding{fail(file, err.Error(), "set dns.forward")}
	}
	named := lab.NameServers(text)
	servers := slices.DeleteFunc(slices.Clone(named), l.AnswersDNS)
	switch {
	case len(named) == 0:
		return []Finding{fail(file, "names no server: clients get REFUSED", "add a nameserver line to it, or set dns.forward to the addresses of servers")}
	case len(servers) == 0:
		return []Finding{fail(file, "names only this appliance itself: clients get REFUSED", "set dns.forward to the addresses of servers outside")}
	}
	all := make([]Finding, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() {
			all[i] = upstream(ctx, server)
			all[i].Subject += " (" + file + ")"
		})
	}
	wg.Wait()
	return all
}
