// Package links says which addresses the interfaces of this machine have, and notifies of changes.
//
//	w, err := links.Open() // an error: poll only
//	defer w.Close()
//	select {
//	case <-w.Changed(): // look again
//	case <-tick.C:      // and now and then: the kernel drops notifications when they are too many
//	}
//
// A notification says that something changed, not what: the caller asks the kernel, with Prefixes, Addrs or Find. It needs no privilege.
package links

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Prefixes returns the addresses of an interface, each with the length of its prefix. The error says that there is no such interface, or
// that the kernel did not answer.
func Prefixes(name string) ([]netip.Prefix, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	return prefixesOf(ifi.Addrs())
}

// Addresses are those of all interfaces at one moment, without zones.
type Addresses []netip.Addr

// Addrs returns the addresses of all interfaces. The error says that the kernel did not answer.
func Addrs() (all Addresses, err error) {
	prefixes, err := prefixesOf(net.InterfaceAddrs())
	for _, p := range prefixes {
		all = append(all, p.Addr())
	}
	return all, err
}

// Serve reports whether a socket that is bound to addr receives: it is one of these, or of loopback, or none in particular.
func (all Addresses) Serve(addr netip.Addr) bool {
	return addr.IsUnspecified() || addr.IsLoopback() || slices.Contains(all, addr.WithZone("").Unmap())
}

// Find returns an interface that has an address which matches, and that address with the length of its prefix; "": none has. The loopback
// interface does not count: it has no segment.
func Find(match func(netip.Prefix) bool) (name string, _ netip.Prefix) {
	all, _ := net.Interfaces()
	for _, ifi := range all {
		prefixes, _ := prefixesOf(ifi.Addrs())
		if i := slices.IndexFunc(prefixes, match); i >= 0 && ifi.Flags&net.FlagLoopback == 0 {
			return ifi.Name, prefixes[i]
		}
	}
	return "", netip.Prefix{}
}

func prefixesOf(addrs []net.Addr, err error) (all []netip.Prefix, _ error) {
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all, err
}

// atMost is how often Changed notifies: a machine that starts a hundred containers changes its interfaces as often.
const atMost = 50 * time.Millisecond

// A Watch receives notifications until Close. A nil Watch receives none.
type Watch struct {
	socket  *os.File
	changed chan struct{}
	done    chan struct{}
}

// Open begins to receive notifications of interfaces and IPv4 and IPv6 addresses (rtnetlink(7)).
func Open() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}
	if err := unix.Bind(fd, groups); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	w := &Watch{socket: os.NewFile(uintptr(fd), "netlink"), changed: make(chan struct{}, 1), done: make(chan struct{})}
	go w.receive()
	return w, nil
}

// receive ends with Close.
func (w *Watch) receive() {
	defer close(w.done)
	var b [4096]byte // of a longer message the rest is dropped
	for {
		_, err := w.socket.Read(b[:])
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // dropped some: that is a change, too
			return
		}
		select {
		case w.changed <- struct{}{}:
		default: // the last one was not received yet
			time.Sleep(atMost)
		}
	}
}

// Changed returns a channel with a value when something has changed since the last one was received.
func (w *Watch) Changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.changed
}

// Close ends the notifications.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	_ = w.socket.Close()
	<-w.done
}
