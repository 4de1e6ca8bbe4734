package libvirtd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"libvirt.org/go/libvirtxml"
)

// initScript is process 1 of the PID namespace. $1 is the folder, $2 a flag of libvirtd. libvirt's paths are compiled in, so the folder's
// subfolders are mounted over them. The shell keeps running to reap the emulators, which libvirt detaches: libvirt takes
// an emulator that was not reaped for a running one.
const initScript = `
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys # its interfaces are those of the network namespace
for pair in etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt run:/run/libvirt lock:/var/lock \
	swtpm:/var/log/swtpm ovs:/run/openvswitch passwd:/etc/passwd group:/etc/group
do
	[ -e "${pair#*:}" ] || mkdir -p "${pair#*:}"
	mount --bind "$1/${pair%%:*}" "${pair#*:}"
done
libvirtd $2 --config "$1/etc/libvirtd.conf" --pid-file "$1/run/libvirtd.pid" &
daemon=$!
while kill -0 $daemon 2>/dev/null; do wait $daemon || true; done
`

// libvirtdConf takes the socket folder and the group of the socket.
const libvirtdConf = `unix_sock_dir = %q
unix_sock_group = %q
unix_sock_rw_perms = "0770"
auth_unix_rw = "none"
# Some containers have neither SMBIOS nor a machine-id to take it from.
host_uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
log_outputs = "3:file:%s"
`

// tcpConf takes the port on loopback where libvirtd listens too, without a login.
const tcpConf = `listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
listen_addr = "127.0.0.1"
tcp_port = "%s"
`

// qemuConf runs emulators as root, without confinement: in the namespaces of libvirtd, with its files.
const qemuConf = `user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
# There is no virtlogd: emulators write their logs themselves.
stdio_handler = "file"
`

// writeFiles writes the folders and files that libvirtd needs.
func writeFiles(dir, port string, cfg Config) error {
	for _, sub := range []string{"etc/storage/autostart", "lib/dnsmasq", "cache", "log", "swtpm", "ovs", "run", "lock", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	group := cfg.Group
	if group == "" {
		group = "root"
	}
	pool, err := poolXML(filepath.Join(dir, "images"))
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(libvirtdConf, filepath.Join(dir, "run"), group, filepath.Join(dir, "log", "libvirtd.log"))
	if port != "" {
		conf += fmt.Sprintf(tcpConf, port)
	}
	files := map[string]string{
		"etc/libvirtd.conf":            conf,
		"etc/qemu.conf":                qemuConf + fmt.Sprintf("remote_display_port_min = %d\n", max(cfg.VNCPort, 5900)),
		"etc/storage/" + Pool + ".xml": pool,
		"passwd":                       withAccount("/etc/passwd", "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin"),
		"group":                        withAccount("/etc/group", "libvirt-qemu:x:64055:"),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("/etc/libvirt/storage/"+Pool+".xml", filepath.Join(dir, "etc/storage/autostart", Pool+".xml"))
}

func poolXML(images string) (string, error) {
	pool := libvirtxml.StoragePool{Type: "dir", Name: Pool, Target: &libvirtxml.StoragePoolTarget{Path: images}}
	return pool.Marshal()
}

// withAccount returns the file with line added, unless it has the name already. Debian's libvirt does not start without
// the account that it was built for, even when it is configured to use another.
func withAccount(file, line string) string {
	have, err := os.ReadFile(file)
	if err != nil {
		have = nil // a container without accounts
	}
	name, _, _ := bytes.Cut([]byte(line), []byte(":"))
	for l := range bytes.Lines(have) {
		if bytes.HasPrefix(l, append(bytes.Clone(name), ':')) {
			return string(have)
		}
	}
	return string(bytes.TrimRight(have, "\n")) + "\n" + line + "\n"
}
