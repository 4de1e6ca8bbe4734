package clusterconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// ConfigName is the name of the installer's input.
const ConfigName = "install-config.yaml"

// bootstrapName is the document of the bootstrap machine.
const bootstrapName = "bootstrap.ign"

// ignitionNames are the documents that openshift-install create ignition-configs writes.
var ignitionNames = []string{bootstrapName, "master.ign", "worker.ign"}

// An OpenShift is what openshift-install wrote.
type OpenShift struct {
	ConfigOnly bool              // an install-config.yaml alone
	Documents  map[string][]byte // by name: bootstrap.ign, master.ign, worker.ign

	name, domain string              // of the cluster, as far as the files say
	apiInt       map[string]*url.URL // by document: where the machine config server is
	install      load.Node           // the install-config; it has a place in a file if ConfigOnly
	source       string              // the document that says the domain; empty: the install-config
	masters      int                 // replicas; -1: not known
	workers      int
	certs        []*x509.Certificate            // below /opt/openshift/tls of bootstrap.ign
	bootFiles    map[string]string              // by document: a file that only the bootstrap machine has
	roots        map[string][]*x509.Certificate // by document: the root CA that bootstrap.ign makes certificates with, and what others trust
}

func newOpenShift() *OpenShift {
	return &OpenShift{Documents: map[string][]byte{}, apiInt: map[string]*url.URL{}, bootFiles: map[string]string{}, roots: map[string][]*x509.Certificate{}, masters: -1, workers: -1}
}

// BootstrapEnds returns when the first certificate in a bootstrap.ign ends; false: the document holds none, or is none.
func BootstrapEnds(document []byte) (until time.Time, ok bool) {
	s, r := newOpenShift(), Report{}
	if s.document(bootstrapName, document) != nil {
		return until, false
	}
	for _, c := range s.certs {
		r.certificate(c, bootstrapName, until)
	}
	if r.Certs == nil {
		return until, false
	}
	return r.Certs.Until, true
}

// ReadOpenShift reads a folder of openshift-install, or an install-config.yaml.
func ReadOpenShift(path string) (*OpenShift, error) {
	s := newOpenShift()
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err, "the folder that openshift-install create ignition-configs wrote, or an "+ConfigName)
	}
	if !info.IsDir() {
		s.ConfigOnly = true
		return s, s.readConfig(path)
	}
	for _, name := range ignitionNames {
		text, err := regular.Read(filepath.Join(path, name), maxDocument)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.document(name, text)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(path, name), err)
		}
	}
	config := filepath.Join(path, ConfigName)
	if _, err := os.Stat(config); len(s.Documents) == 0 && err == nil {
		s.ConfigOnly = true
		return s, s.readConfig(config)
	}
	if len(s.Documents) == 0 {
		return nil, fmt.Errorf("%s has neither *.ign nor %s: run openshift-install create ignition-configs --dir %[1]s first", path, ConfigName)
	}
	var metadata struct{ ClusterName string }
	if text, err := regular.Read(filepath.Join(path, "metadata.json"), maxDocument); err == nil && json.Unmarshal(text, &metadata) == nil {
		s.name = metadata.ClusterName
	}
	return s, nil
}

// An ignition is the part of an Ignition document (specification 3) that is looked at.
type ignition struct {
	Ignition struct {
		Version  string
		Config   struct{ Merge []resource }
		Security struct {
			TLS struct{ CertificateAuthorities []resource }
		}
	}
	Storage struct {
		Files []struct {
			Path     string
			Contents resource
		}
	}
}

// A resource is something that is fetched, or that its data URL holds.
type resource struct{ Source string }

func (s *OpenShift) document(name string, text []byte) error {
	var d ignition
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("is not Ignition: %w", err)
	}
	if !strings.HasPrefix(d.Ignition.Version, "3.") {
		return fmt.Errorf("has Ignition version %q: want 3.x, of OpenShift 4.6 or newer", d.Ignition.Version)
	}
	s.Documents[name] = text
	for _, m := range d.Ignition.Config.Merge {
		if u, err := url.Parse(m.Source); err == nil && u.Host != "" {
			s.apiInt[name] = u
		}
	}
	for _, ca := range d.Ignition.Security.TLS.CertificateAuthorities {
		s.roots[name] = append(s.roots[name], certificates(dataOf(ca.Source))...)
	}
	for _, f := range d.Storage.Files {
		if s.bootFiles[name] == "" && strings.HasPrefix(f.Path, "/opt/openshift/") {
			s.bootFiles[name] = f.Path
		}
		switch {
		case strings.HasPrefix(f.Path, "/opt/openshift/tls/") && strings.HasSuffix(f.Path, ".crt"):
			found := certificates(dataOf(f.Contents.Source))
			s.certs = append(s.certs, found...)
			if strings.HasSuffix(f.Path, "/root-ca.crt") {
				s.roots[name] = found
			}
		case strings.HasSuffix(f.Path, "/manifests/cluster-config.yaml"):
			if manifest, err := load.YAMLValue(dataOf(f.Contents.Source)); err == nil {
				text, _ := at(manifest, "data", "install-config").(string)
				_ = s.config("", []byte(text)) // what it cannot say is not compared
			}
		}
	}
	return nil
}

// dataOf decodes a data URL (RFC 2397).
func dataOf(source string) []byte {
	head, body, ok := strings.Cut(strings.TrimPrefix(source, "data:"), ",")
	if !ok {
		return nil
	}
	if strings.HasSuffix(head, ";base64") {
		text, _ := base64.StdEncoding.DecodeString(body)
		return text
	}
	text, _ := url.PathUnescape(body)
	return []byte(text)
}

func (s *OpenShift) readConfig(path string) error {
	text, err := regular.Read(path, maxDocument)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := s.config(path, text); err != nil {
		return err // with its place
	}
	for _, keys := range [][]string{{"baseDomain"}, {"metadata"}, {"metadata", "name"}} {
		last := len(keys) - 1
		in, key := s.install.At(keys[:last]...), keys[last]
		near := lab.Nearest(key, in.Keys())
		switch {
		case in.At(key).Text() != "", key == "metadata" && slices.Contains(in.Keys(), key):
		case near == "" || near == key:
			return fmt.Errorf("read %s: has no %s: is it an %s?", path, strings.Join(keys, "."), ConfigName)
		default:
			return &lab.Problem{Pos: in.KeyPos(near), Message: near + " is no key of an install-config: did you mean " + key + "?"}
		}
	}
	return nil
}

// config reads an install-config.
func (s *OpenShift) config(file string, text []byte) error {
	documents, err := load.YAMLDocuments(file, text)
	if err != nil || len(documents) == 0 {
		return err
	}
	s.install = documents[0]
	s.domain, s.name = s.install.At("baseDomain").Text(), s.install.At("metadata", "name").Text()
	s.masters = replicasOf(s.install.At("controlPlane"))
	if pools := s.install.At("compute").List(); len(pools) > 0 {
		s.workers = replicasOf(pools[0])
	}
	return nil
}

// replicasOf returns the number of machines of a pool; -1: not known.
func replicasOf(pool load.Node) int {
	n, err := strconv.ParseUint(pool.At("replicas").Text(), 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// installConfig compares the platform, the networks and the types of the numbers of an install-config.
func (s *OpenShift) installConfig(c *lab.Cluster, r *Report) {
	place := func(n load.Node) lab.Pos {
		if !s.ConfigOnly {
			return lab.Pos{} // inside of bootstrap.ign
		}
		return n.Pos()
	}
	for _, pool := range append(s.install.At("compute").List(), s.install.At("controlPlane")) {
		if n := pool.At("replicas"); n.Exists() && replicasOf(pool) < 0 {
			r.Errors.Addf(place(n), "", "replicas %q is not a number: want one such as 3", n.Text())
		}
	}
	for _, platform := range s.install.At("platform").Keys() {
		if platform != "none" && platform != "external" && !c.Names {
			r.Errors.Addf(place(s.install.At("platform")), "", "platform %s brings its own load balancer and addresses (keepalived), and the lab balances "+
				"cluster %s: want platform: {none: {}}, or balancer: off in clusters.%[2]s",
				platform, c.Name)
		}
	}
	networks := s.install.At("networking", "machineNetwork")
	var all []netip.Prefix
	for _, n := range networks.List() {
		cidr := n.At("cidr")
		p, err := netip.ParsePrefix(cidr.Text())
		if err != nil {
			r.Errors.Addf(place(cidr), "", "%q is no subnet: want one such as 10.0.0.0/16", cidr.Text())
			return
		}
		all = append(all, p)
	}
	for _, h := range c.Hosts {
		inside := func(p netip.Prefix) bool { return p.Contains(h.IP) }
		if len(all) > 0 && h.IP.IsValid() && !slices.ContainsFunc(all, inside) {
			r.Errors.Addf(place(networks), "", "machineNetwork does not have %s, the address of host %s: want the subnet of its network, %s", h.IP, h.Name, h.Network.Subnet)
			return
		}
	}
}

// Compared says what of an install-config was compared with the lab.
func (s *OpenShift) Compared() string {
	compared := []string{"the cluster's domain"}
	for _, keys := range [][]string{{"platform"}, {"networking", "machineNetwork"}, {"controlPlane", "replicas"}, {"compute"}} {
		if name := strings.Join(keys, "."); s.install.At(keys...).Exists() {
			compared = append(compared, strings.Replace(name, "compute", "compute.replicas", 1))
		}
	}
	return strings.Join(compared, ", ")
}

// at returns the value below keys, or nil.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

// Check finds the cluster of the lab that the files are for, and compares them. The cluster is nil if there is none.
func (s *OpenShift) Check(l *lab.Lab, now time.Time) (*lab.Cluster, Report) {
	var r Report
	fail := func(format string, args ...any) { r.Errors.Addf(lab.Pos{}, "", format, args...) }
	domain := s.clusterDomain(l)
	i := slices.IndexFunc(l.Clusters, func(c *lab.Cluster) bool { return c.Domain == domain })
	s.expiry(&r, now)
	s.oneRun(&r)
	if name := s.source; i < 0 && s.apiInt[name] != nil {
		fail("%s fetches its configuration from %s, and cluster domain %q is not in the lab: %s", name, s.apiInt[name], domain, nearestCluster(l, domain))
		return nil, r
	}
	if i < 0 {
		fail("the documents are for cluster domain %q (metadata.name.baseDomain), which is not in the lab: %s", domain, nearestCluster(l, domain))
		return nil, r
	}
	c := l.Clusters[i]
	if c.Kind != lab.OpenShift {
		r.Errors.Addf(c.Pos, "clusters."+c.Name+".kind", "is %s: want openshift", c.Kind)
	}
	if !c.Address.IsValid() {
		r.Errors.Addf(c.Pos, "clusters."+c.Name+".address", "is missing, so api-int.%s has no address", c.Domain)
	}
	s.pointers(c, &r)
	s.replicas(c, &r)
	s.installConfig(c, &r)
	return c, r
}

// pointers reports documents that are another machine's: all but bootstrap.ign fetch the configuration of their own role.
func (s *OpenShift) pointers(c *lab.Cluster, r *Report) {
	fail := func(format string, args ...any) { r.Errors.Addf(lab.Pos{}, "", format, args...) }
	for _, name := range ignitionNames {
		u, path := s.apiInt[name], "/config/"+strings.TrimSuffix(name, ".ign")
		if file := s.bootFiles[name]; file != "" && name != bootstrapName {
			fail("%s holds %s, a file of the bootstrap machine: want the %[1]s that openshift-install wrote", name, file)
		}
		switch want := "api-int." + c.Domain + ":22623"; {
		case u == nil:
			continue
		case name == bootstrapName:
			fail("%s fetches %s, which the bootstrap machine serves itself: want the %[1]s that openshift-install wrote", name, u)
			continue
		case u.Host != want && u.Host != c.API.String()+":22623":
			fail("%s fetches its configuration from %s: want %s", name, u.Host, want)
		}
		if u.Path != path {
			fail("%s fetches %s, the configuration of other machines: want %s", name, u, path)
		}
	}
}

// oneRun reports documents of different runs of openshift-install: their machines would refuse the certificate of the machine config server.
func (s *OpenShift) oneRun(r *Report) {
	first := ""
	for _, name := range ignitionNames {
		known := func(ca *x509.Certificate) bool { return slices.ContainsFunc(s.roots[first], ca.Equal) }
		switch roots := s.roots[name]; {
		case len(roots) == 0: // not known
		case first == "":
			first = name
		case !slices.ContainsFunc(roots, known):
			r.Errors.Addf(lab.Pos{}, "", "%s trusts another root CA than that of %s: the two are of different runs of openshift-install; want all of one run", name, first)
		}
	}
}

// clusterDomain returns <name>.<base domain>. Where no install-config says it, it is that of a document, which becomes the source: one whose
// cluster is in the lab, if any is.
func (s *OpenShift) clusterDomain(l *lab.Lab) (domain string) {
	if s.name != "" && s.domain != "" {
		return strings.ToLower(s.name + "." + s.domain)
	}
	for _, name := range slices.Sorted(maps.Keys(s.apiInt)) {
		rest, ok := strings.CutPrefix(strings.ToLower(s.apiInt[name].Hostname()), "api-int.")
		if !ok {
			continue
		}
		if slices.ContainsFunc(l.Clusters, func(c *lab.Cluster) bool { return c.Domain == rest }) {
			return rest
		}
		if domain == "" {
			domain, s.source = rest, name
		}
	}
	return domain
}

// expiry reports when the bootstrap's certificates end: the installer makes some for 24 hours.
func (s *OpenShift) expiry(r *Report, now time.Time) {
	for _, c := range s.certs {
		r.certificate(c, bootstrapName, now)
	}
	const short = 4 * time.Hour
	switch {
	case r.Certs == nil && s.Documents[bootstrapName] != nil:
		r.Warnings.Addf(lab.Pos{}, "", "bootstrap.ign holds no certificates below /opt/openshift/tls: it is not what openshift-install create "+
			"ignition-configs writes, and the cluster cannot come up with it")
	case r.Certs == nil:
	case r.Certs.Left <= 0:
		r.Errors.Addf(lab.Pos{}, "", "the certificates in bootstrap.ign ended %s ago (%s): run openshift-install create ignition-configs again, in a new "+
			"folder", (-r.Certs.Left).Round(time.Minute), r.Certs.Subject)
	case r.Certs.Left < short:
		r.Warnings.Addf(lab.Pos{}, "", "the certificates in bootstrap.ign end in %s (%s): the installation has to be through by then, or run "+
			"openshift-install create ignition-configs again, in a new folder", r.Certs.Left.Round(time.Minute), r.Certs.Subject)
	}
}

// replicas compares the numbers of machines.
func (s *OpenShift) replicas(c *lab.Cluster, r *Report) {
	count := func(role string) int { return len(membersOf(c, role)) }
	if n := count(lab.RoleControlPlane); s.masters >= 0 && n != s.masters {
		r.Errors.Addf(lab.Pos{}, "", "controlPlane.replicas is %d, and cluster %s has %s with role control-plane: want the same number", s.masters, c.Name, lab.Plural(n, "host"))
	}
	if n := count(lab.RoleWorker); s.workers >= 0 && n != s.workers {
		r.Warnings.Addf(lab.Pos{}, "", "compute.replicas is %d, and cluster %s has %s with role worker", s.workers, c.Name, lab.Plural(n, "host"))
	}
	if n := count(lab.RoleBootstrap); n != 1 {
		r.Errors.Addf(lab.Pos{}, "", "cluster %s has %s with role bootstrap: want one until the installation is through", c.Name, lab.Plural(n, "host"))
	}
}

// Place implements Set: a document for each role.
func (s *OpenShift) Place(c *lab.Cluster, files Files) ([]Placement, lab.Problems) {
	if s.ConfigOnly {
		return nil, nil
	}
	roles := map[string]string{lab.RoleBootstrap: bootstrapName, lab.RoleControlPlane: "master.ign", lab.RoleWorker: "worker.ign"}
	return placeByHost(c, files, s.Documents, "ignition/{{.Host.Role}}.ign", func(h *lab.Host) string { return roles[h.Role] })
}
