package clusterconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// The files that talosctl gen config writes, and where profiles of Talos usually look.
const (
	talosControlPlane = "controlplane.yaml"
	talosWorker       = "worker.yaml"
	talosClient       = "talosconfig"
	talosLike         = "talos/{{.Host.Role}}.yaml"
)

// What to do about documents that do not fit.
const (
	talosAgain = "run talosctl gen config again, in a new folder"
	talosSANs  = "talosctl gen config --additional-sans adds it"
)

// A Talos is what talosctl gen config wrote, and machine configurations of single hosts beside it: HOST.yaml.
type Talos struct {
	Dir       string
	Documents map[string][]byte // machine configurations, by name

	machines map[string]talosMachine // by name
	client   load.Node               // talosconfig
}

// A talosMachine is a machine configuration.
type talosMachine struct {
	config load.Node // the document that has machine and cluster
	host   load.Node // hostname, wherever it is
}

// ReadTalos reads a folder of talosctl.
func ReadTalos(dir string) (*Talos, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, unreadable(dir, err, "the folder that talosctl gen config wrote")
	}
	s := &Talos{Dir: dir, Documents: map[string][]byte{}, machines: map[string]talosMachine{}}
	for _, e := range entries {
		name := e.Name()
		if filepath.Ext(name) != ".yaml" && name != talosClient {
			continue
		}
		text, err := regular.Read(filepath.Join(dir, name), maxDocument)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
		}
		documents, err := load.YAMLDocuments(filepath.Join(dir, name), text)
		if err != nil {
			return nil, err
		}
		m, isMachine := machineOf(documents)
		switch {
		case name == talosClient && len(documents) > 0:
			s.client = documents[0]
		case isMachine:
			s.Documents[name], s.machines[name] = text, m
		case name == talosControlPlane || name == talosWorker:
			return nil, notTalos(filepath.Join(dir, name), documents)
		}
	}
	if len(s.machines) == 0 {
		return nil, fmt.Errorf("%s has no machine configuration: run talosctl gen config NAME https://api.NAME.DOMAIN:6443 --output %[1]s first", dir)
	}
	return s, nil
}

// notTalos is the error of a document that has the name of a machine configuration, and is none.
func notTalos(name string, documents []load.Node) error {
	at := lab.Pos{File: name, Line: 1, Column: 1}
	if len(documents) > 0 {
		at = documents[0].Pos()
	}
	return &lab.Problem{Pos: at, Message: "is not a machine configuration of Talos, which has the key machine: " + talosAgain, Secret: true}
}

func machineOf(documents []load.Node) (m talosMachine, ok bool) {
	for _, d := range documents {
		switch {
		case d.At("machine").Exists():
			m.config, ok = d, true
			if name := d.At("machine", "network", "hostname"); name.Exists() {
				m.host = name
			}
		case d.At("kind").Text() == "HostnameConfig":
			if name := d.At("hostname"); name.Exists() {
				m.host = name
			}
		}
	}
	return m, ok
}

// names returns the names of the machine configurations; those of gen config first.
func (s *Talos) names() (names []string) {
	for name := range s.machines {
		names = append(names, name)
	}
	slices.Sort(names)
	first := func(name string) int { return slices.Index([]string{talosWorker, talosControlPlane}, name) }
	slices.SortStableFunc(names, func(a, b string) int { return first(b) - first(a) })
	return names
}

// Check implements Set.
func (s *Talos) Check(l *lab.Lab, now time.Time) (*lab.Cluster, Report) {
	var r Report
	c := s.cluster(l, &r)
	for _, name := range s.names() {
		s.certificates(&r, s.machines[name].config, now)
	}
	s.clientCertificates(&r, now)
	s.oneGeneration(&r)
	if c == nil {
		return nil, r
	}
	if c.Kind != lab.Talos && c.Kind != lab.Kubernetes {
		r.Errors.Addf(c.Pos, "clusters."+c.Name+".kind", "is %s: want talos", c.Kind)
	}
	for _, h := range membersOf(c, lab.RoleBootstrap) {
		r.Errors.Addf(h.Pos, "hosts."+h.Name+".role", "is bootstrap: Talos has no bootstrap machine, its first control-plane machine starts etcd; want control-plane")
	}
	for _, name := range s.names() {
		s.machine(l, c, name, &r)
	}
	return c, r
}

// cluster finds the cluster of the lab that the endpoints lead to, and compares its name.
func (s *Talos) cluster(l *lab.Lab, r *Report) (c *lab.Cluster) {
	for _, name := range s.names() {
		config := s.machines[name].config
		endpoint := config.At("cluster", "controlPlane", "endpoint")
		named := config.At("cluster", "clusterName")
		u, err := url.Parse(endpoint.Text())
		if err != nil || u.Hostname() == "" {
			r.Errors.Addf(endpoint.Pos(), "", "endpoint %q is no URL: want https://api.NAME.DOMAIN:6443", endpoint.Text())
			continue
		}
		at := clusterByEndpoint(l, u.Hostname())
		switch {
		case at == nil:
			r.Errors.Addf(endpoint.Pos(), "", "endpoint %s leads to no cluster of the lab: %s", endpoint.Text(), s.wanted(l, named.Text(), u.Hostname()))
		case u.Scheme != "https" || u.Port() != "6443":
			r.Errors.Addf(endpoint.Pos(), "", "endpoint %s is not where the lab serves cluster %s: want https://%s:6443", endpoint.Text(), at.Name, u.Hostname())
		case c != nil && at != c:
			r.Errors.Addf(endpoint.Pos(), "", "endpoint %s leads to cluster %s, and another document to %s: %s", endpoint.Text(), at.Name, c.Name, talosAgain)
		case named.Exists() && named.Text() != at.Name:
			r.Warnings.Addf(named.Pos(), "", "clusterName is %s, and the endpoint leads to cluster %s of the lab: contexts of talosctl and kubectl get the first", named.Text(), at.Name)
		}
		if c == nil {
			c = at
		}
	}
	if c == nil {
		return onlyCluster(l, lab.Talos, lab.Kubernetes)
	}
	return c
}

// wanted says which endpoint was probably meant.
func (s *Talos) wanted(l *lab.Lab, name, host string) string {
	for _, c := range l.Clusters {
		if c.Name != name {
			continue
		}
		if at := endpoints(c); len(at) > 0 {
			return fmt.Sprintf("want https://%s:6443, of cluster %s", at[0], c.Name)
		}
		return fmt.Sprintf("want an address in clusters.%s (%s)", c.Name, c.Pos)
	}
	return nearestCluster(l, strings.TrimPrefix(host, "api."))
}

// machine compares one machine configuration with the hosts that get it.
func (s *Talos) machine(l *lab.Lab, c *lab.Cluster, name string, r *Report) {
	m := s.machines[name]
	var hosts []*lab.Host
	for _, h := range c.Hosts {
		if s.document(h) == name {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) == 0 {
		r.Warnings.Addf(m.config.Pos(), "", "%s is for no host of cluster %s", name, c.Name)
		return
	}
	kind := m.config.At("machine", "type")
	for _, h := range hosts {
		if want := map[string]string{lab.RoleControlPlane: "controlplane", lab.RoleWorker: "worker"}[h.Role]; want != kind.Text() {
			r.Errors.Addf(kind.Pos(), "", "machine type is %q, and host %s (%s) has role %s: want %s", kind.Text(), h.Name, h.Pos, h.Role, want)
			break
		}
	}
	s.disk(m, hosts, r)
	if len(hosts) > 1 && m.host.Exists() {
		r.Errors.Addf(m.host.Pos(), "", "hostname %s would be the name of %d machines: want no hostname, DHCP gives each its own", m.host.Text(), len(hosts))
	} else if m.host.Exists() && m.host.Text() != hosts[0].Name && m.host.Text() != hosts[0].FQDN {
		r.Warnings.Addf(m.host.Pos(), "", "hostname %s is not that of host %s: want %s, or no hostname, which leaves it to DHCP", m.host.Text(), hosts[0].Name, hosts[0].Name)
	}
	if kind.Text() == "controlplane" {
		endpoint, _ := url.Parse(m.config.At("cluster", "controlPlane", "endpoint").Text())
		r.certSANs(c, m.config.At("cluster", "apiServer", "certSANs"), hostOf(endpoint), talosSANs)
		if c.Kind == lab.Talos { // the lab has a balancer for Talos' own API
			r.certSANs(c, m.config.At("machine", "certSANs"), "", talosSANs)
		}
		r.subnets(l, append(m.config.At("cluster", "network", "podSubnets").List(), m.config.At("cluster", "network", "serviceSubnets").List()...))
	}
}

func hostOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.Hostname()
}

// document returns the name of a host's machine configuration: its own, or that of its role; empty for other roles.
func (s *Talos) document(h *lab.Host) string {
	role := map[string]string{lab.RoleControlPlane: talosControlPlane, lab.RoleWorker: talosWorker}[h.Role]
	if _, own := s.machines[h.Name+".yaml"]; own && role != "" {
		return h.Name + ".yaml"
	}
	return role
}

// disk compares the disk that Talos installs itself to with what the lab knows of the hosts.
func (s *Talos) disk(m talosMachine, hosts []*lab.Host, r *Report) {
	disk := m.config.At("machine", "install", "disk")
	if !disk.Exists() {
		if !m.config.At("machine", "install", "diskSelector").Exists() {
			r.Errors.Addf(m.config.At("machine", "install").Pos(), "", "no install disk: want machine.install.disk")
		}
		return
	}
	for _, h := range hosts {
		want, why := diskOf(h)
		if want != "" && !strings.HasPrefix(disk.Text(), want) || want == "" && h.VM != nil {
			r.Errors.Addf(disk.Pos(), "", "Talos would install to %s, and host %s has %s: want the same disk in both", disk.Text(), h.Name, why)
			return
		}
	}
}

// diskOf returns the disk that a host installs to, or how the names of its disks begin; empty: not known, or none.
func diskOf(h *lab.Host) (disk, why string) {
	if p := h.Profile; p != nil && p.InstallTo != "" {
		return p.InstallTo, fmt.Sprintf("install_to: %s (%s)", p.InstallTo, p.PosOf("install_to"))
	}
	if h.VM == nil {
		return "", ""
	}
	if len(h.VM.Disks) == 0 {
		return "", fmt.Sprintf("no disk (%s)", h.Pos)
	}
	names := map[string]string{"": "/dev/vd", "virtio": "/dev/vd", "scsi": "/dev/sd", "sata": "/dev/sd", "usb": "/dev/sd", "nvme": "/dev/nvme"}
	disk = names[h.VM.Disks[0].Bus]
	return disk, fmt.Sprintf("%s… (%s)", disk, h.Pos)
}

// certificates reports the authorities of a machine configuration that have ended; talosctl makes them for ten years.
func (s *Talos) certificates(r *Report, config load.Node, now time.Time) {
	for _, at := range [][]string{{"machine", "ca", "crt"}, {"cluster", "ca", "crt"}, {"cluster", "aggregatorCA", "crt"}, {"cluster", "etcd", "ca", "crt"}} {
		r.talosCertificate(config.At(at...), strings.Join(at, "."), talosAgain, now)
	}
}

func (r *Report) talosCertificate(n load.Node, name, remedy string, now time.Time) {
	text, err := base64.StdEncoding.DecodeString(n.Text())
	if !n.Exists() || n.Text() == "" {
		return
	}
	all := certificates(text)
	if err != nil || len(all) == 0 {
		r.secret(&r.Errors, n, "%s is no certificate in base64: %s", name, talosAgain)
		return
	}
	const short = 30 * 24 * time.Hour
	for _, c := range all {
		r.certificate(c, filepath.Base(n.Pos().File), now)
		switch left := c.NotAfter.Sub(now); {
		case left <= 0:
			r.secret(&r.Errors, n, "the certificate %s ended on %s: %s", name, c.NotAfter.Format(time.DateOnly), remedy)
		case left < short:
			r.secret(&r.Warnings, n, "the certificate %s ends on %s: %s", name, c.NotAfter.Format(time.DateOnly), remedy)
		}
	}
}

// secret adds a problem of a line that is not shown.
func (r *Report) secret(to *lab.Problems, n load.Node, format string, args ...any) {
	*to = append(*to, &lab.Problem{Pos: n.Pos(), Message: fmt.Sprintf(format, args...), Secret: true})
}

// clientCertificates looks at talosconfig, whose certificate talosctl makes for one year.
func (s *Talos) clientCertificates(r *Report, now time.Time) {
	if !s.client.Exists() {
		r.Warnings.Addf(lab.Pos{}, "", "%s is missing: etcd cannot be started without it (talosctl bootstrap)", filepath.Join(s.Dir, talosClient))
		return
	}
	contexts := s.client.At("contexts")
	context := contexts.At(s.client.At("context").Text())
	r.talosCertificate(context.At("crt"), "of "+talosClient, "run talosctl config new", now)
	for _, name := range s.names() {
		ca := s.machines[name].config.At("machine", "ca", "crt")
		if context.At("ca").Text() != ca.Text() {
			r.secret(&r.Errors, context.At("ca"), "the certificate authority is not that of %s (%s), so that no machine would trust this talosconfig: %s", name, ca.Pos(), talosAgain)
			return
		}
	}
}

// oneGeneration reports machine configurations of different runs of talosctl gen config: their machines would not find each other.
func (s *Talos) oneGeneration(r *Report) {
	names := s.names()
	first := s.machines[names[0]].config
	for _, name := range names[1:] {
		other := s.machines[name].config
		for _, at := range [][]string{{"cluster", "id"}, {"cluster", "secret"}, {"cluster", "token"}, {"machine", "token"}, {"machine", "ca", "crt"}} {
			if a, b := first.At(at...), other.At(at...); a.Exists() && b.Exists() && a.Text() != b.Text() {
				r.secret(&r.Errors, b, "%s is not that of %s (%s): the two are of different runs of talosctl gen config; want both of one run", strings.Join(at, "."), names[0], a.Pos())
				break
			}
		}
	}
}

// Place implements Set.
func (s *Talos) Place(c *lab.Cluster, files Files) ([]Placement, lab.Problems) {
	return placeByHost(c, files, s.Documents, talosLike, s.document)
}

// A BootFile is a file of a Talos release that machines boot from the network.
type BootFile struct {
	Name string `json:"name"` // as Talos calls it, without the architecture
	URL  string `json:"url"`
}

// installers matches references to installer images: of a release, and of the image factory with a schematic.
var installers = regexp.MustCompile(`^(?:ghcr\.io/siderolabs/installer|([^/]+)/(?:[a-z-]+-)?installer/([0-9a-f]{64})):(v[0-9][\w.+-]*)$`)

// BootFiles returns the version of Talos that the control plane installs, and which kernel and initramfs belong to it. They are unknown,
// and the version empty, for installer images of another registry.
func (s *Talos) BootFiles(arch string) (version string, files []BootFile) {
	m := installers.FindStringSubmatch(s.machines[s.names()[0]].config.At("machine", "install", "image").Text())
	if m == nil {
		return "", nil
	}
	version = m[3]
	if m[2] != "" {
		base := "https://" + m[1] + "/image/" + m[2] + "/" + version + "/"
		return version, []BootFile{{"kernel", base + "kernel-" + arch}, {"initramfs", base + "initramfs-" + arch + ".xz"}}
	}
	base := "https://github.com/siderolabs/talos/releases/download/" + version + "/"
	return version, []BootFile{{"kernel", base + "vmlinuz-" + arch}, {"initramfs", base + "initramfs-" + arch + ".xz"}}
}

// versions matches the version in the URL of a file of Talos.
var versions = regexp.MustCompile(`/(v[0-9]+\.[0-9]+\.[0-9]+[\w.+-]*)/[^/]*$`)

// Version returns the version of Talos that a URL names; empty: none.
func Version(from string) string {
	if m := versions.FindStringSubmatch(from); m != nil {
		return m[1]
	}
	return ""
}

// ClientFile returns the path of the talosconfig; empty: there is none.
func (s *Talos) ClientFile() string {
	at := filepath.Join(s.Dir, talosClient)
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return at
}
