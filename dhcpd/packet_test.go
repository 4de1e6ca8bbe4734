package dhcpd

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Clients as captured: firmware, boot loader, installer and system of one machine.
type client func(m lab.MAC) []dhcpv4.Modifier

func raw(code uint8, v string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(v)))
}

const uuid17 = "\x00\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff"

var prlOVMF = string([]byte{1, 2, 3, 4, 5, 6, 12, 13, 15, 17, 18, 22, 23, 28, 40, 41, 42, 43, 50, 51, 54, 58, 59, 60, 66, 67, 97, 128, 129, 130, 131, 132, 133, 134, 135})

func ovmf(lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true), raw(60, "PXEClient:Arch:00007:UNDI:003000"), raw(93, "\x00\x07"), raw(94, "\x01\x03\x00"),
		raw(97, uuid17), raw(57, "\x05\xc0"), raw(55, prlOVMF),
	}
}

func ovmfHTTP(lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true), raw(60, "HTTPClient:Arch:00016:UNDI:003000"), raw(93, "\x00\x10"), raw(94, "\x01\x03\x00"),
		raw(97, uuid17), raw(57, "\x05\xc0"), raw(55, prlOVMF+"\xeb"),
	}
}

func bios(m lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		dhcpv4.WithBroadcast(true), raw(60, "PXEClient:Arch:00000:UNDI:002001"), raw(93, "\x00\x00"), raw(94, "\x01\x02\x01"),
		raw(97, uuid17), raw(57, "\x04\xec"), raw(55, "\x01\x02\x03\x05\x06\x0b\x0c\x0d\x0f\x10\x11\x12\x2b\x36\x3c\x43\x80\x81"),
	}
}

func ipxe(m lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(61, "\x01"+string(m[:])), raw(60, "PXEClient:Arch:00000:UNDI:002001"), raw(77, "iPXE"), raw(93, "\x00\x00"),
		raw(94, "\x01\x02\x01"), raw(97, uuid17), raw(57, "\x05\xc0"),
		raw(55, "\x01\x03\x06\x07\x0c\x0f\x11\x1a\x2b\x3c\x42\x43\x77\x80\x81\x82\x83\x84\x85\x86\x87\xaf\xcb"),
		raw(175, "\xb1\x05\x01\x1a\xf4\x10\x00\xeb\x03\x01\x00\x00\x17\x01\x01\x22\x01\x01\x13\x01\x01"),
	}
}

func debianInstaller(m lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(61, "\x01"+string(m[:])), raw(60, "d-i"), raw(57, "\x02\x40"), raw(55, "\x01\x03\x06\x0c\x0f\x1c\x2a"),
	}
}

func networkd(m lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(61, "\xff\x12\x34\x56\x78\x00\x02\x00\x00\xab\x11\x01\x02\x03\x04\x05\x06\x07\x08"), raw(57, "\x05\xc0"),
		raw(55, "\x01\x03\x06\x0c\x0f\x21\x2a\x78\x79"), raw(12, "fedora"),
	}
}

func dhclient(lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{raw(55, "\x01\x1c\x02\x03\x0f\x06\x0c")}
}

func udhcpc(m lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(61, "\x01"+string(m[:])), raw(60, "udhcp 1.35.0"), raw(57, "\x02\x40"), raw(55, "\x01\x03\x06\x0c\x0f\x1c\x2a"),
	}
}

// message builds a packet of a client.
func message(t testing.TB, kind dhcpv4.MessageType, m lab.MAC, c client, more ...dhcpv4.Modifier) []byte {
	t.Helper()
	mods := []dhcpv4.Modifier{dhcpv4.WithHwAddr(m[:]), dhcpv4.WithMessageType(kind), func(d *dhcpv4.DHCPv4) {
		d.TransactionID = dhcpv4.TransactionID{0xde, 0xad, 0xbe, 0xef}
	}}
	if c != nil {
		mods = append(mods, c(m)...)
	}
	p, err := dhcpv4.New(append(mods, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p.ToBytes()
}

func withRequested(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(a)))
}
func withServer(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(a)))
}
func withCiaddr(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }
func withGiaddr(a string) dhcpv4.Modifier { return dhcpv4.WithGatewayIP(net.ParseIP(a)) }

func decode(t testing.TB, b []byte) *dhcpv4.DHCPv4 {
	t.Helper()
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		t.Fatalf("the reply is not DHCP: %v", err)
	}
	return p
}

// text shows a reply as people read it, options in the order of the wire.
func text(t testing.TB, out packetOut) string {
	t.Helper()
	p := decode(t, out.data)
	var b strings.Builder
	via := "udp"
	if !out.to.MAC.IsZero() {
		via = out.to.MAC.String()
	}
	fmt.Fprintf(&b, "%s to %s (%s) from %s:%d, %d bytes\n", p.MessageType(), out.to.To, via, out.to.Source, out.to.Port, len(out.data))
	fmt.Fprintf(&b, "flags %04x ciaddr %s yiaddr %s siaddr %s giaddr %s file %q\n",
		p.Flags, p.ClientIPAddr, p.YourIPAddr, p.ServerIPAddr, p.GatewayIPAddr, p.BootFileName)
	opts := out.data[236+4:]
	for len(opts) > 1 && opts[0] != 255 {
		if opts[0] == 0 {
			opts = opts[1:]
			continue
		}
		v := opts[2 : 2+opts[1]]
		fmt.Fprintf(&b, "%3d %s\n", opts[0], value(opts[0], v))
		opts = opts[2+opts[1]:]
	}
	return b.String()
}

func value(code uint8, v []byte) string {
	switch code {
	case 1, 3, 6, 28, 42, 54:
		var s []string
		for i := 0; i+4 <= len(v); i += 4 {
			s = append(s, netip.AddrFrom4([4]byte(v[i:])).String())
		}
		return strings.Join(s, " ")
	case 12, 15, 56, 60, 66, 67:
		return fmt.Sprintf("%q", v)
	case 51, 58, 59:
		return fmt.Sprintf("%ds", uint32(v[0])<<24|uint32(v[1])<<16|uint32(v[2])<<8|uint32(v[3]))
	case 53:
		return dhcpv4.MessageType(v[0]).String()
	case 121, 249:
		var r dhcpv4.Routes
		if err := r.FromBytes(v); err != nil {
			return err.Error()
		}
		return r.String()
	}
	return fmt.Sprintf("% x", v)
}
