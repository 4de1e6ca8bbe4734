package handover

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// A Handover keeps the listening sockets of balancers across a restart. systemd holds a copy of each (FDSTORE of
// sd_notify(3)) and gives it to the next process (sd_listen_fds(3)): connections in between wait in the kernel instead of
// being refused. Without systemd it does nothing.
type Handover struct {
	log *slog.Logger

	mu        sync.Mutex
	inherited map[netip.AddrPort]*net.TCPListener // not yet taken
	packets   map[netip.AddrPort]*net.UDPConn     // not yet taken
	stopping  time.Time                           // since when the process stops; zero: it does not
}

// New takes the sockets that this process was started with.
func New(log *slog.Logger) *Handover {
	h := &Handover{log: log, inherited: make(map[netip.AddrPort]*net.TCPListener), packets: make(map[netip.AddrPort]*net.UDPConn)}
	for _, f := range activation.Files(true) {
		if conn, err := net.FilePacketConn(f); err == nil {
			_ = f.Close()
			if udp, ok := conn.(*net.UDPConn); ok {
				addr := udp.LocalAddr().(*net.UDPAddr).AddrPort()
				h.packets[netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())] = udp
			} else {
				_ = conn.Close()
			}
			continue
		}
		l, err := net.FileListener(f)
		_ = f.Close() // l has its own copy
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			log.Warn("a file descriptor of systemd is no socket that listens", "name", f.Name(), "err", err)
			if l != nil {
				_ = l.Close()
			}
			continue
		}
		h.inherited[listenAddr(tcp)] = tcp
	}
	return h
}

func listenAddr(l *net.TCPListener) netip.AddrPort {
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// Take returns the inherited socket of addr; nil: there is none.
func (h *Handover) Take(addr netip.AddrPort) net.Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.inherited[addr]
	if l == nil {
		return nil // not a nil *net.TCPListener
	}
	delete(h.inherited, addr)
	return l
}

// TakePacket returns the inherited UDP socket of addr; nil: there is none.
func (h *Handover) TakePacket(addr netip.AddrPort) *net.UDPConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	conn := h.packets[addr]
	delete(h.packets, addr)
	return conn
}

// CloseOthers closes the sockets that were not taken.
func (h *Handover) CloseOthers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for addr, l := range h.inherited {
		h.notify("FDSTOREREMOVE=1\nFDNAME=" + storedName(TCP, addr))
		_ = l.Close()
	}
	for addr, conn := range h.packets {
		h.notify("FDSTOREREMOVE=1\nFDNAME=" + storedName(UDP, addr))
		_ = conn.Close()
	}
	clear(h.inherited)
	clear(h.packets)
}

// KeepListener is Keep for a listener of TCP.
func (h *Handover) KeepListener(addr netip.AddrPort, l net.Listener) {
	if tcp, ok := l.(*net.TCPListener); ok {
		h.Keep(TCP, addr, tcp)
	}
}

// Keep gives systemd a copy of a socket.
func (h *Handover) Keep(name string, addr netip.AddrPort, socket syscall.Conn) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { h.notify("FDSTORE=1\nFDNAME="+storedName(name, addr), int(fd)) })
}

// Stop makes Closed keep the sockets for the next process.
func (h *Handover) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = time.Now()
}

// Stops returns since when the process stops; zero: it does not.
func (h *Handover) Stops() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopping
}

// Closed has systemd drop its copy of a socket, unless the process stops.
func (h *Handover) Closed(name string, addr netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping.IsZero() {
		h.notify("FDSTOREREMOVE=1\nFDNAME=" + storedName(name, addr))
	}
}

// What names of sockets begin with.
const (
	TCP = "lb-"
	UDP = "lu-"
)

// storedName returns the FDNAME of a socket. It is short: the names of all are in one environment variable of the next process
// (LISTEN_FDNAMES), which the kernel limits to 128 KiB, and a range of ports has thousands of sockets.
func storedName(name string, addr netip.AddrPort) string {
	host := addr.Addr().As16()
	sum := binary.BigEndian.Uint32(host[12:])
	if addr.Addr().Is6() {
		sum = crc32.ChecksumIEEE(host[:])
	}
	return name + strconv.FormatUint(uint64(sum)<<16|uint64(addr.Port()), 36)
}

// notify is sd_notify with file descriptors.
func (h *Handover) notify(state string, fds ...int) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	to, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer func() { _ = unix.Close(to) }()
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		err = unix.Sendmsg(to, []byte(state), rights, &unix.SockaddrUnix{Name: path}, 0)
	}
	if err != nil {
		h.log.Warn("systemd does not keep a socket: connections are refused during a restart", "err", err)
	}
}
