package netns

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports of FreePort: below those that the kernel gives to sockets without one.
const (
	firstPort = 20_000
	allPorts  = 10_000
)

var ports atomic.Uint32

// FreePort returns a port of loopback that is free in TCP and UDP, for a program that cannot be given a socket. No other test of the
// process gets it, nor does the kernel give it to a socket before the program opens its own.
func FreePort(t testing.TB) int {
	t.Helper()
	for range allPorts {
		// Processes in one network namespace begin at different ports.
		port := firstPort + int((uint32(os.Getpid())*97+ports.Add(1))%allPorts)
		if isFree(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return port
		}
	}
	t.Fatal("no port of loopback is free")
	return 0
}

// isFree reports whether a TCP and a UDP socket can have an address.
func isFree(addr string) bool {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = tcp.Close() }()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	_ = udp.Close()
	return true
}
