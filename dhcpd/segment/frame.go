package segment

import (
	"encoding/binary"
	"net/netip"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/sys/unix"
)

// The ports of DHCP (RFC 2131 section 4.1) and of the PXE boot server (PXE 2.1 section 2.2.1).
const (
	PortServer = 67
	PortClient = 68
	PortPXE    = 4011
)

const (
	ethernetHeader = 14
	ipv4Header     = 20
	udpHeader      = 8
	// FrameHeadroom is how many bytes a frame leaves free in front of the DHCP message, for the headers of a raw frame.
	FrameHeadroom = ethernetHeader + ipv4Header + udpHeader
)

var broadcastIP = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// A Dest is where a message is sent to, and from which address.
type Dest struct {
	Source netip.Addr     // our address in the network; invalid: the kernel chooses
	Port   uint16         // our port: PortServer or PortPXE
	To     netip.AddrPort // the receiver
	MAC    lab.MAC        // of a client that has no address yet, so ARP cannot find it; zero: sent by IP
}

// Broadcast makes d the broadcast address of the segment (RFC 2131 section 4.1).
func (d *Dest) Broadcast() {
	d.To = netip.AddrPortFrom(broadcastIP, PortClient)
	d.MAC = arp.Broadcast
}

// putHeaders writes Ethernet, IPv4 and UDP headers into the headroom of a frame.
func putHeaders(frame []byte, hw lab.MAC, d *Dest) {
	copy(frame[0:], d.MAC[:])
	copy(frame[6:], hw[:])
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	putIPv4(frame[ethernetHeader:], d)
}

func putIPv4(ip []byte, d *Dest) {
	src, dst := [4]byte{}, d.To.Addr().As4()
	if d.Source.Is4() {
		src = d.Source.As4()
	}
	clear(ip[:ipv4Header])
	ip[0] = 4<<4 | ipv4Header/4
	ip[1] = 0x10 // low delay, as other DHCP servers set it
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[6] = 0x40 // do not fragment
	ip[8] = 64
	ip[9] = unix.IPPROTO_UDP
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^packet.Sum(0, ip[:ipv4Header]))
	putUDP(ip[ipv4Header:], src, dst, d)
}

// putUDP computes the checksum: IPv4 does not need one, but some firmware drops packets without it.
func putUDP(udp []byte, src, dst [4]byte, d *Dest) {
	binary.BigEndian.PutUint16(udp[0:], d.Port)
	binary.BigEndian.PutUint16(udp[2:], d.To.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp[6], udp[7] = 0, 0
	sum := packet.Sum(0, src[:])
	sum = packet.Sum(sum, dst[:])
	sum = packet.Sum(sum, []byte{0, unix.IPPROTO_UDP, udp[4], udp[5]})
	sum = ^packet.Sum(sum, udp)
	if sum == 0 {
		sum = 0xffff // zero means no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
}
