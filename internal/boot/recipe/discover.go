package recipe

import (
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// After its report an unknown machine requests its script again, often enough that an admin who adopts it need not wait, but not
// forever, since it may have an operating system on its disk.
const (
	discoverPause  = 20 // seconds between two requests
	discoverRounds = 15 // then it starts from its own disk, or UEFI tries the same by HTTP once more
)

// Discover returns the script of a machine that the lab does not list: it reports its hardware below base, the URL of the boot
// listener, and requests its script again and again. Once it is adopted, that is the script of its profile. Any key starts its own disk.
//
// The iPXE of QEMU's ROMs of 2019 has all commands used here; a value that an iPXE does not know is empty. ":uristring" escapes texts;
// memory is SMBIOS type 17, the size of the first module.
func Discover(mac lab.MAC, base string) []byte {
	var b text
	begin(&b, mac.String(), "is not in the lab yet")
	b.WriteString("isset ${round} || set round:int32 0\n")
	fmt.Fprintf(&b, "set report %s/%s%s\n", base, lab.PathReport, mac.Hyphens())
	query := "?"
	for _, v := range discoverValues() {
		query += v[0] + "=${" + v[1] + "}&"
	}
	fmt.Fprintf(&b, "imgfetch --name report ${report}%s && imgfree report ||\n", strings.TrimSuffix(query, "&"))
	fmt.Fprintf(&b, "echo UUID ${uuid} serial ${serial} ${manufacturer} ${product}\n")
	fmt.Fprintf(&b, "echo On the appliance: bootlab adopt %s\n", mac)
	b.WriteString("inc round\n")
	fmt.Fprintf(&b, "iseq ${round} %d && goto disk ||\n", discoverRounds)
	fmt.Fprintf(&b, "prompt --timeout %d Any key: start from its own disk now && goto disk ||\n", discoverPause*1000)
	fmt.Fprintf(&b, "chain --replace %s/%s || goto disk\n", base, lab.BootPath(mac, lab.ScriptName))
	b.WriteString(":disk\n")
	b.WriteString("iseq ${platform} efi && exit 1 ||\n")
	b.WriteString("sanboot --no-describe --drive 0x80 || exit 1\n")
	return b.Bytes()
}

// discoverValues are the parameters of a report and the iPXE settings that they are.
func discoverValues() [][2]string {
	return [][2]string{
		{"uuid", "uuid"}, {"serial", "serial:uristring"}, {"asset", "asset:uristring"}, {"board", "board-serial:uristring"},
		{"manufacturer", "manufacturer:uristring"}, {"product", "product:uristring"},
		{"arch", "buildarch"}, {"platform", "platform"}, {"ipxe", "version:uristring"}, {"memory", "memsize"}, {"module", "smbios/0.17.12.2:hexraw"},
		{"nic", "netX/chip:uristring"}, {"bus", "netX/busid:hexraw"},
		{"mac0", "net0/mac:hexhyp"}, {"mac1", "net1/mac:hexhyp"}, {"mac2", "net2/mac:hexhyp"}, {"mac3", "net3/mac:hexhyp"},
	}
}
