package privileges

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/store/identity"
)

// Confine confines the process to what a daemon with this lab opens and does, unless the lab says otherwise. Everything that needs more was
// done before. labPath is the lab file, and firmware the folder of network boot programs; empty: none.
func Confine(l *lab.Lab, labPath, firmware string, log *slog.Logger) (*confine.Confinement, error) {
	if !l.Appliance.Confine {
		log.Warn("appliance.confine is off: the process may open every file of its user and make every system call")
		return confine.Off("appliance.confine is off"), nil
	}
	c, err := confine.Apply(paths(l, labPath, firmware))
	if err != nil {
		return nil, fmt.Errorf("%w: set appliance.confine to off to start without", err)
	}
	log.Info("process confined", "files", c.Files, "system_calls", c.Calls)
	return c, nil
}

// paths returns what a daemon with this lab opens after its start. They are folders where they can be: a file that is
// replaced by another of its name, as resolv.conf is, is a new file for the kernel.
func paths(l *lab.Lab, labPath, firmware string) confine.Paths {
	a := l.Appliance
	p := confine.Paths{
		Execute: append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}, filepath.SplitList(os.Getenv("PATH"))...), // ssh, ipmitool, libvirt
		Read:    slices.Concat(systemFolders(), homeFolders(os.Getenv("HOME")), around(labPath), around(a.Files)),
		Write:   []string{a.State, identity.BesideLab(labPath)},
		Remove:  []string{filepath.Dir(a.AdminSocket)}, // it is removed at the end
		Devices: []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"},
	}
	if self, err := os.Executable(); err == nil {
		p.Execute = append(p.Execute, self)
	}
	if firmware != "" {
		p.Read = append(p.Read, firmware)
	}
	for _, f := range namedFiles(l) {
		p.Read = append(p.Read, filepath.Dir(f.path))
		if real, err := regular.EvalSymlinks(f.path); err == nil {
			p.Read = append(p.Read, filepath.Dir(real))
		}
	}
	slices.Sort(p.Read)
	p.Read = slices.Compact(p.Read)
	return p
}

// Hypervisor returns what the process of a hypervisor opens: programs such as ssh, and the keys of the daemon's user. Not the lab, its files
// and the state.
func Hypervisor(uri string) *confine.Paths {
	p := &confine.Paths{
		Execute: append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}, filepath.SplitList(os.Getenv("PATH"))...),
		Read:    slices.Concat(systemFolders(), homeFolders(os.Getenv("HOME"))),
		Devices: []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"},
	}
	for _, file := range filesOfURI(uri) {
		p.Read = append(p.Read, filepath.Dir(file))
	}
	return p
}

// systemFolders returns what libraries read: names, certificates, time zones, the kernel's tables, and what resolv.conf is a
// link to.
func systemFolders() []string {
	folders := []string{
		"/etc", "/proc", "/sys", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/connman",
		"/var/lib/ca-certificates", "/var/lib/sss/mc",
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "ZONEINFO"} {
		folders = append(folders, filepath.SplitList(os.Getenv(name))...)
	}
	return folders
}

// homeFolders returns what ssh and libvirt read in the home folder of the daemon's user.
func homeFolders(home string) []string {
	if home == "" {
		return nil
	}
	return []string{filepath.Join(home, ".ssh"), filepath.Join(home, ".pki"), filepath.Join(home, ".config/libvirt")}
}

// around returns the folder that path is, or is in, and the one above it, so that the folder may be replaced by another while
// the daemon runs; the same of what path is a link to, as a release of many may be.
func around(path string) (folders []string) {
	names := []string{path}
	if real, err := regular.EvalSymlinks(path); err == nil && real != path {
		names = append(names, real)
	}
	for _, name := range names {
		if info, err := regular.Stat(name); err != nil || !info.IsDir() {
			name = filepath.Dir(name)
		}
		folders = append(folders, name)
		if above := filepath.Dir(name); !shared(above) {
			folders = append(folders, above)
		}
	}
	return folders
}

// shared reports whether a folder holds more than one may read for the sake of a lab in it: the root, its folders, homes, and
// the data of other services.
func shared(folder string) bool {
	parts := strings.Split(strings.Trim(folder, "/"), "/")
	return len(parts) < 2 || len(parts) == 2 && slices.Contains([]string{"home", "var", "run", "usr"}, parts[0])
}

// A namedFile is a file, other than those below appliance.files, that the daemon opens because the lab names it.
type namedFile struct {
	pos       lab.Pos
	key, path string
}

// namedFiles returns the files that the lab names: zones, passwords, certificates, and those in the URIs of hypervisors.
func namedFiles(l *lab.Lab) (files []namedFile) {
	seen := map[string]bool{"": true}
	add := func(pos lab.Pos, key, path string) {
		if !seen[path] { // many hosts share one
			seen[path] = true
			files = append(files, namedFile{pos, key, path})
		}
	}
	add(lab.Pos{}, "appliance.store.ca_file", l.Appliance.Store.CAFile)
	for _, z := range l.Zones {
		add(z.Pos, "dns.zones."+strings.TrimSuffix(z.Origin, ".")+".file", z.File)
	}
	for _, k := range l.DNS.Keys {
		add(k.Pos, "dns.keys."+strings.TrimSuffix(k.Name, ".")+".secret_file", k.SecretFile)
	}
	forward := l.DNS.Forward
	for _, z := range l.DNS.ForwardZones {
		forward = slices.Concat(forward, z.Servers)
	}
	for _, n := range forward {
		add(n.Pos, "dns.forward", n.File)
		add(n.Pos, "dns.forward", n.CAFile)
	}
	for _, b := range l.Balancers {
		add(b.Pos, "balancers."+b.Name+".backend_tls.ca_file", b.BackendTLS.CAFile)
		if b.ACME != nil {
			add(b.Pos, "balancers."+b.Name+".tls.acme.ca_file", b.ACME.CAFile)
		}
		add(b.Pos, "balancers."+b.Name+".check.ca_file", b.Check.CAFile)
	}
	for _, c := range l.Certificates {
		add(c.Pos, c.Key, c.Path)
	}
	for _, c := range l.Clusters {
		for _, path := range load.KubeconfigFiles(c.Kubeconfig) {
			add(c.Pos, "clusters."+c.Name+".kubeconfig", path)
		}
	}
	for _, a := range l.Redfish.Accounts {
		add(lab.Pos{}, "redfish.accounts."+a.Name+".password_file", a.PasswordFile)
	}
	for _, h := range l.Hosts {
		if h.BMC != nil {
			add(h.Pos, "hosts."+h.Name+".bmc.password_file", h.BMC.PasswordFile)
			add(h.Pos, "hosts."+h.Name+".bmc.ca_file", h.BMC.CAFile)
		}
	}
	for _, h := range l.Hypervisors {
		for _, path := range filesOfURI(h.URI) {
			add(h.Pos, "hypervisors."+h.Name+".uri", path)
		}
	}
	return files
}

// filesOfURI returns the files in a libvirt URI: keys, known hosts, certificates, and the definition of the test driver.
func filesOfURI(uri string) []string {
	u, err := url.Parse(uri)
	if err != nil {
		return nil // libvirt reports it
	}
	paths := []string{lab.KeyFile(uri), u.Query().Get("known_hosts")}
	if pki := u.Query().Get("pkipath"); pki != "" {
		paths = append(paths, filepath.Join(pki, "cacert.pem"))
	}
	if strings.HasPrefix(u.Scheme, "test") && u.Path != "/default" {
		paths = append(paths, u.Path)
	}
	return slices.DeleteFunc(paths, func(p string) bool { return !filepath.IsAbs(p) })
}

// whatToDo ends the errors about files that the running daemon cannot open.
const whatToDo = "is outside the folders that the running daemon is confined to: restart it to open this one too (systemctl restart bootlab), or move it below a folder of the lab"

// Outside returns an error if l names files that the running daemon cannot open. c may be nil: no limit.
func Outside(c *confine.Confinement, l *lab.Lab) error {
	if c == nil {
		return nil
	}
	var problems lab.Problems
	for _, f := range namedFiles(l) {
		if c.Outside(f.path) {
			problems.Addf(f.pos, f.key, "%s %s", f.path, whatToDo)
		}
	}
	return problems.Err()
}

// ExplainDenied adds to an error of reading the lab what to do where the confinement caused it. c may be nil: no limit.
func ExplainDenied(c *confine.Confinement, err error) error {
	var at *fs.PathError
	if c == nil || !errors.Is(err, fs.ErrPermission) || !errors.As(err, &at) || !c.Outside(at.Path) {
		return err
	}
	return fmt.Errorf("%w: it %s", err, whatToDo)
}
