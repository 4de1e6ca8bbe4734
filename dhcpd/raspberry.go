package dhcpd

import (
	"bytes"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// raspberryBoot is the value of option 43 that a Raspberry Pi looks for, a PXE boot menu whose one item is "Raspberry Pi Boot": without
// that text it takes no offer. The first Pi 3B compares with three blanks behind it; all others are content if the text is in there.
// A Pi reads no more of the menu: tag 6 (no discovery by broadcast or multicast), 10 (prompt, 0 seconds), 9 (item of type 0).
const raspberryBoot = "\x06\x01\x03" + "\x0a\x04\x00PXE" + "\x09\x17\x00\x00\x14Raspberry Pi Boot   " + "\xff"

// archRaspberry is what a Pi's boot loader calls itself in option 93 where it does not say 0, which is a PC's BIOS.
const archRaspberry wire.Arch = 41

// isRaspberry reports whether a Raspberry Pi's own boot loader asks. UEFI and iPXE on a Pi are as on any other machine.
func isRaspberry(r *wire.Packet) bool {
	switch {
	case r.Stage != wire.StagePXE:
		return false
	case r.Arch == archRaspberry:
		return true
	case r.HasArch && r.Arch != wire.ArchBIOS:
		return false
	}
	// Option 97 is a byte 0 and "RPi4" or "RPi5"; the Pi 3 has its serial number there.
	return bytes.HasPrefix(r.UUID, []byte("\x00RPi")) || madeByRaspberry(r.MAC)
}

// madeByRaspberry knows the prefixes of MACs that Raspberry Pi has registered.
func madeByRaspberry(m lab.MAC) bool {
	return slices.Contains([][3]byte{
		{0xb8, 0x27, 0xeb}, {0xdc, 0xa6, 0x32}, {0xe4, 0x5f, 0x01}, {0x28, 0xcd, 0xc1}, {0xd8, 0x3a, 0xdd}, {0x2c, 0xcf, 0x67},
	}, [3]byte(m[:3]))
}
