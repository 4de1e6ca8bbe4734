package interop

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
)

const cloudInitVar = "BOOTLAB_INTEROP_CLOUD_INIT" // the folder that cloud-init was unpacked in

// unpackCloudInit unpacks Debian's package, and the modules that its NoCloud source imports, below dir. It is not installed, as it would
// reconfigure this machine at its next boot. A package that cannot be downloaded fails the test that needs it.
func unpackCloudInit(dir string) error {
	_ = guest.Unpack(context.Background(), guest.CacheDir(), dir, "cloud-init", "python3-yaml", "python3-configobj", "python3-oauthlib",
		"python3-six", "python3-requests", "python3-urllib3", "python3-chardet", "python3-charset-normalizer", "python3-idna", "python3-certifi")
	return os.Setenv(cloudInitVar, filepath.Join(dir, "usr/lib/python3/dist-packages"))
}

// nocloud runs cloud-init's NoCloud source with the URL of the seed on the kernel's command line.
const nocloud = `
import sys
from cloudinit import helpers
from cloudinit.sources.DataSourceNoCloud import DataSourceNoCloudNet
source = DataSourceNoCloudNet({}, None, helpers.Paths({"cloud_dir": sys.argv[1], "run_dir": sys.argv[1]}))
print("found", source.get_data())
print(source.metadata["instance-id"], source.metadata["local-hostname"])
print(source.get_userdata_raw().decode())
print("vendor", repr(source.get_vendordata_raw()))
`

var seedArgument = regexp.MustCompile(` (ds=nocloud\S+)`)

// TestCloudInit: the real cloud-init finds its seed by the argument in the script and reads its documents twice, as Ubuntu's installer does.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	modules := os.Getenv(cloudInitVar)
	netns.Need(t, "udhcpc", "python3", filepath.Join(modules, "cloudinit"))
	l := newLab(t, "10.108.4")
	l.profiles = "  seed: {os: ubuntu, kernel: images/k, initrd: [images/i], config: seed/user-data}\n"
	l.hosts = "  u0: {mac: \"52:54:00:00:00:20\", ip: NET.20, profile: seed}\n"
	l.file("files/seed/user-data", []byte("#cloud-config\nautoinstall: {version: 1, late-commands: [curl {{.DoneURL}}]}\n"))
	l.write()
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:00:20")
	if addr := m.lease(t); addr != l.net+".20" {
		t.Fatalf("u0 got %q", addr)
	}
	_, script := m.get(l.net+".20", "boot/52-54-00-00-00-20/boot.ipxe")
	seed := seedArgument.FindStringSubmatch(script)
	if seed == nil {
		t.Fatalf("no seed in the script:\n%s", script)
	}
	for range 2 {
		out, err := m.run("env", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+modules, "DEBUG_PROC_CMDLINE=autoinstall "+seed[1], "python3", "-c", nocloud, t.TempDir())
		for _, want := range []string{"found True\n", "u0-52-54-00-00-00-20 u0\n", "#cloud-config\nautoinstall: ", "/done/52-54-00-00-00-20/", "vendor b''\n"} {
			if err != nil || !strings.Contains(out, want) {
				t.Fatalf("cloud-init does not log %q: %v\n%s", want, err, out)
			}
		}
		d.logged("install_started host=u0 ") // the read has ended
	}
	d.until("the install has begun", func() bool { out, _ := d.bootlab("hosts"); return strings.Contains(out, "installing") })
}
