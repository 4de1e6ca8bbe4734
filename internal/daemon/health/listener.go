package health

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// udpSuffix follows the address of a socket for UDP, of a server whose others are for TCP.
const udpSuffix = "/udp"

// Listener returns a listener of the balancers that was opened, and that notes its state from now on. closed is called by its Close.
func (h *Servers) Listener(l net.Listener, addr netip.AddrPort, closed func()) net.Listener {
	h.Opened(LB, addr.String(), nil)
	return &observedListener{Listener: l, health: h, addr: addr.String(), closed: closed}
}

// PacketConn is Listener for a socket for UDP.
func (h *Servers) PacketConn(conn *net.UDPConn, addr netip.AddrPort, closed func()) *PacketConn {
	socket := addr.String() + udpSuffix
	h.Opened(LB, socket, nil)
	return &PacketConn{conn, func() {
		h.Closed(LB, socket)
		closed()
	}}
}

// A PacketConn is a socket of the balancers for UDP, and notes when it is closed.
type PacketConn struct {
	*net.UDPConn
	closed func() // called by Close
}

// Close implements lbproxy.PacketConn.
func (c *PacketConn) Close() error {
	c.closed()
	return c.UDPConn.Close()
}

// An observedListener notes when it fails and when it is closed.
type observedListener struct {
	net.Listener
	health *Servers
	addr   string
	closed func() // called by Close
	failed bool   // the last Accept
}

// Accept implements net.Listener; one goroutine calls it.
func (l *observedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if (err != nil || l.failed) && !errors.Is(err, net.ErrClosed) {
		l.failed = err != nil
		l.health.accepted(LB, l.addr, err)
	}
	return conn, err
}

// SyscallConn implements syscall.Conn: the balancers accept most connections without package net. After an error they call Accept.
func (l *observedListener) SyscallConn() (syscall.RawConn, error) {
	if c, ok := l.Listener.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Close implements net.Listener.
func (l *observedListener) Close() error {
	l.health.Closed(LB, l.addr)
	l.closed()
	return l.Listener.Close()
}
