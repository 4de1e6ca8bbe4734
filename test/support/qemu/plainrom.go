package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"

	"golang.org/x/sys/unix"
)

// A plainROM stands between a machine and the bridge and makes the iPXE of QEMU's ROM look like the PXE ROM of a card from
// the shop: it blanks DHCP options 77 (user class "iPXE") and 175 (iPXE's features) in what the ROM sends. No ROM that
// is not iPXE is available in a free distribution; on the wire, this is how they differ. As soon as the machine has asked for a
// file by TFTP, nothing is changed any more: from then on the loaded program sends.
type plainROM struct {
	tap      *os.File
	conn     *net.UDPConn // QEMU's end of the wire: one frame a datagram
	loaded   atomic.Bool
	rewrites atomic.Int64
}

// startPlainROM returns QEMU's -netdev for a NIC behind a plainROM on the bridge.
func startPlainROM(t testing.TB, bridge string) string {
	t.Helper()
	name := fmt.Sprintf("tap%d", serial.Add(1))
	tap, err := openTap(name)
	if err != nil {
		t.Fatalf("open a tap device: %v", err)
	}
	netns.Run(t, "ip", "link", "set", name, "master", bridge, "up")
	loopback := net.IPv4(127, 0, 0, 1)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback})
	if err != nil {
		t.Fatal(err)
	}
	spare, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback})
	if err != nil {
		t.Fatal(err)
	}
	peer := spare.LocalAddr().(*net.UDPAddr) // a port that is free, for QEMU
	spare.Close()

	p := &plainROM{tap: tap, conn: conn}
	done := make(chan struct{}, 2)
	go func() { p.fromMachine(); done <- struct{}{} }()
	go func() { p.toMachine(peer); done <- struct{}{} }()
	t.Cleanup(func() {
		tap.Close()
		conn.Close()
		<-done
		<-done
		if p.rewrites.Load() == 0 {
			t.Error("the ROM sent no DHCP packet that says iPXE: this test shows nothing")
		}
	})
	return fmt.Sprintf("socket,id=n0,udp=%s,localaddr=%s", conn.LocalAddr(), peer)
}

func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

const maxFrame = 65536

func (p *plainROM) fromMachine() {
	buf := make([]byte, maxFrame)
	for {
		n, err := p.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // QEMU has not started yet, or has ended
		}
		frame := buf[:n]
		if port, payload, ok := udpPayload(frame); ok && !p.loaded.Load() {
			switch {
			case port == 69:
				p.loaded.Store(true)
			case port == 67 && blankOptions(payload, 77, 175):
				binary.BigEndian.PutUint16(frame[udpOffset(frame)+6:], 0) // no checksum (RFC 768)
				p.rewrites.Add(1)
			}
		}
		_, _ = p.tap.Write(frame)
	}
}

func (p *plainROM) toMachine(peer *net.UDPAddr) {
	buf := make([]byte, maxFrame)
	for {
		n, err := p.tap.Read(buf)
		if err != nil {
			return
		}
		_, _ = p.conn.WriteToUDP(buf[:n], peer)
	}
}

const ethernet = 14 // bytes of an untagged Ethernet header

func udpOffset(frame []byte) int { return ethernet + int(frame[ethernet]&0xf)*4 }

// udpPayload returns the destination port and the payload of a whole UDP datagram over IPv4.
func udpPayload(frame []byte) (port uint16, payload []byte, ok bool) {
	if len(frame) < ethernet+20 || frame[12] != 8 || frame[13] != 0 || frame[ethernet+9] != unix.IPPROTO_UDP {
		return 0, nil, false
	}
	at := udpOffset(frame)
	if len(frame) < at+8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint16(frame[at+2:]), frame[at+8:], true
}

// blankOptions overwrites the DHCP options of these codes with padding (RFC 2132, 3.1) and reports whether there were any.
func blankOptions(packet []byte, codes ...byte) bool {
	const fixed = 236 + 4 // BOOTP's fields and the magic cookie
	blanked := false
	for i := fixed; i < len(packet); {
		code := packet[i]
		if code == 255 {
			break
		}
		if code == 0 {
			i++
			continue
		}
		if i+2 > len(packet) || i+2+int(packet[i+1]) > len(packet) {
			break
		}
		end := i + 2 + int(packet[i+1])
		if bytes.IndexByte(codes, code) >= 0 {
			clear(packet[i:end])
			blanked = true
		}
		i = end
	}
	return blanked
}
