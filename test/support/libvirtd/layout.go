package libvirtd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"libvirt.org/go/libvirtxml"
)

// initScript is the first process of the namespaces. $1 is the folder. libvirt's own folders are compiled into it, so
// ours are mounted over them. The shell stays as the first process: it reaps the emulators, which libvirt detaches; while
// nobody reaps them libvirt believes that they still run.
const initScript = `
set -e
mount --make-rprivate /
mount -t proc proc /proc
for pair in etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt run:/run/libvirt \
	passwd:/etc/passwd group:/etc/group
do
	[ -e "${pair#*:}" ] || mkdir -p "${pair#*:}"
	mount --bind "$1/${pair%%:*}" "${pair#*:}"
done
libvirtd --config "$1/etc/libvirtd.conf" --pid-file "$1/run/libvirtd.pid" &
daemon=$!
while kill -0 $daemon 2>/dev/null; do wait $daemon || true; done
`

// libvirtdConf takes the socket folder and the group of the socket.
const libvirtdConf = `unix_sock_dir = %q
unix_sock_group = %q
unix_sock_rw_perms = "0770"
auth_unix_rw = "none"
# The usual sources, SMBIOS and machine-id, are not there in every container.
host_uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
log_outputs = "3:file:%s"
`

// qemuConf runs emulators as root in no cage: they share the caller's namespaces, files and fate.
const qemuConf = `user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
# No virtlogd here: emulators write their logs themselves.
stdio_handler = "file"
`

// layOut fills the folder with what libvirtd wants to find.
func layOut(dir, group string) error {
	for _, sub := range []string{"etc/storage/autostart", "lib", "cache", "log", "run", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if group == "" {
		group = "root"
	}
	pool, err := poolXML(filepath.Join(dir, "images"))
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(libvirtdConf, filepath.Join(dir, "run"), group, filepath.Join(dir, "log", "libvirtd.log"))
	files := map[string]string{
		"etc/libvirtd.conf":            conf,
		"etc/qemu.conf":                qemuConf,
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

// withAccount returns the file with line added unless it has that name already. Debian's libvirt refuses to start
// without the account that it was built for, even if told to use another.
func withAccount(file, line string) string {
	have, err := os.ReadFile(file)
	if err != nil {
		have = nil // a machine without accounts gets the one that is needed
	}
	name, _, _ := bytes.Cut([]byte(line), []byte(":"))
	for l := range bytes.Lines(have) {
		if bytes.HasPrefix(l, append(bytes.Clone(name), ':')) {
			return string(have)
		}
	}
	return string(bytes.TrimRight(have, "\n")) + "\n" + line + "\n"
}
