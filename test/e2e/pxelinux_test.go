package e2e

import (
	"os"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// pxelinuxLab has machines that chain to PXELINUX, a file of the user's. Options 209 and 210 (RFC 5071), config file and path prefix, may
// come from the lab file or from the script, as iPXE passes its settings on to PXELINUX. Without 210 PXELINUX searches beside the script.
const pxelinuxLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1}
profiles:
  script: {ipxe: ipxe/script.ipxe}
  lease: {ipxe: ipxe/lease.ipxe}
hosts:
  plain: {mac: "52:54:00:77:00:ab", ip: 10.77.0.21, profile: script}
  file: {mac: "52:54:00:77:00:ac", ip: 10.77.0.22, profile: script, options: {"209": {value: "text:special.cfg", force: true}}}
  prefix: {mac: "52:54:00:77:00:ad", ip: 10.77.0.23, profile: lease, options: {"210": {value: "text:/public/other/", force: true}}}
`

// TestPXELINUX: PXELINUX finds its configuration below files/public, by the machine's MAC, in
// capitals too, by option 209, and below the prefix of option 210.
func TestPXELINUX(t *testing.T) {
	t.Parallel()
	netns.Need(t, qemu.Needs()...)
	files := map[string]string{
		"ipxe/script.ipxe": "#!ipxe\nset netX/210:string {{.FilesURL}}/public/pxelinux/\nchain {{.FilesURL}}/public/pxelinux/pxelinux.0\n",
		"ipxe/lease.ipxe":  "#!ipxe\nchain tftp://{{.Appliance.Address}}/public/pxelinux/pxelinux.0\n",
		"public/pxelinux/pxelinux.cfg/01-52-54-00-77-00-AB": say("by MAC"),
		"public/pxelinux/pxelinux.cfg/default":              say("by default"),
		"public/pxelinux/special.cfg":                       say("by option 209"),
		"public/other/pxelinux.cfg/0A4D00":                  say("by option 210 and address"),
	}
	for name, from := range map[string]string{
		"public/pxelinux/pxelinux.0":  "/usr/lib/PXELINUX/pxelinux.0",
		"public/pxelinux/ldlinux.c32": "/usr/lib/syslinux/modules/bios/ldlinux.c32",
		"public/other/ldlinux.c32":    "/usr/lib/syslinux/modules/bios/ldlinux.c32",
	} {
		netns.Need(t, from)
		body, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(body)
	}
	r := newRig(t, pxelinuxLab, files)
	machines := map[string]*qemu.Machine{}
	for name, mac := range map[string]string{"plain": "52:54:00:77:00:ab", "file": "52:54:00:77:00:ac", "prefix": "52:54:00:77:00:ad"} {
		machines[name] = qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: mac, Firmware: qemu.BIOS, MemoryMiB: 128})
	}
	for name, want := range map[string]string{"plain": "by MAC", "file": "by option 209", "prefix": "by option 210 and address"} {
		machines[name].Await(t, patience, "PXELINUX configured "+want)
		r.wantKinds(t, name, event.ScriptServed)
	}
}

// say returns a configuration of PXELINUX that prints where it was found, and boots nothing.
func say(where string) string {
	return "SERIAL 0\nSAY PXELINUX configured " + where + "\nPROMPT 1\nTIMEOUT 0\nDEFAULT none\nLABEL none\n  LOCALBOOT -1\n"
}
