package clusterconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// ConfigName is the name of the installer's input.
const ConfigName = "install-config.yaml"

// An OpenShift is what openshift-install wrote.
type OpenShift struct {
	ConfigOnly bool              // an install-config.yaml alone
	Documents  map[string][]byte // by name: bootstrap.ign, master.ign, worker.ign

	name, domain string            // of the cluster, as far as the files say
	apiInt       map[string]string // by document: host of the machine config server
	masters      int               // replicas; -1: not known
	workers      int
	certs        []*x509.Certificate // below /opt/openshift/tls of bootstrap.ign
}

// ReadOpenShift reads a folder of openshift-install, or an install-config.yaml.
func ReadOpenShift(path string) (*OpenShift, error) {
	s := &OpenShift{Documents: map[string][]byte{}, apiInt: map[string]string{}, masters: -1, workers: -1}
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err, "the folder that openshift-install create ignition-configs wrote, or an "+ConfigName)
	}
	if !info.IsDir() {
		s.ConfigOnly = true
		return s, s.readConfig(path)
	}
	for _, name := range []string{"bootstrap.ign", "master.ign", "worker.ign"} {
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
		Version string
		Config  struct{ Merge []struct{ Source string } }
	}
	Storage struct {
		Files []struct {
			Path     string
			Contents struct{ Source string }
		}
	}
}

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
			s.apiInt[name] = u.Host
		}
	}
	for _, f := range d.Storage.Files {
		switch {
		case strings.HasPrefix(f.Path, "/opt/openshift/tls/") && strings.HasSuffix(f.Path, ".crt"):
			s.certs = append(s.certs, certificates(dataOf(f.Contents.Source))...)
		case strings.HasSuffix(f.Path, "/manifests/cluster-config.yaml"):
			if manifest, err := load.YAMLValue(dataOf(f.Contents.Source)); err == nil {
				text, _ := at(manifest, "data", "install-config").(string)
				_ = s.config([]byte(text)) // what it cannot say is not compared
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
	if err == nil {
		err = s.config(text)
	}
	if err == nil && (s.name == "" || s.domain == "") {
		err = errors.New("has no baseDomain or no metadata.name: is it an install-config.yaml?")
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// config reads an install-config.
func (s *OpenShift) config(text []byte) error {
	v, err := load.YAMLValue(text)
	if err != nil {
		return err
	}
	s.domain, _ = at(v, "baseDomain").(string)
	s.name, _ = at(v, "metadata", "name").(string)
	if n, ok := at(v, "controlPlane", "replicas").(int); ok {
		s.masters = n
	}
	if pools, _ := at(v, "compute").([]any); len(pools) > 0 {
		if n, ok := at(pools[0], "replicas").(int); ok {
			s.workers = n
		}
	}
	return nil
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
	domain := s.clusterDomain()
	i := slices.IndexFunc(l.Clusters, func(c *lab.Cluster) bool { return c.Domain == domain })
	s.expiry(&r, now)
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
	for name, host := range s.apiInt {
		if want := "api-int." + c.Domain + ":22623"; host != want && host != c.API.String()+":22623" {
			fail("%s fetches its configuration from %s: want %s", name, host, want)
		}
	}
	s.replicas(c, &r)
	return c, r
}

// clusterDomain returns <name>.<base domain>.
func (s *OpenShift) clusterDomain() string {
	if s.name != "" && s.domain != "" {
		return strings.ToLower(s.name + "." + s.domain)
	}
	for _, host := range s.apiInt {
		host, _, _ = strings.Cut(host, ":")
		if rest, ok := strings.CutPrefix(host, "api-int."); ok {
			return strings.ToLower(rest)
		}
	}
	return ""
}

// expiry reports when the bootstrap's certificates end: the installer makes some for 24 hours.
func (s *OpenShift) expiry(r *Report, now time.Time) {
	for _, c := range s.certs {
		r.certificate(c, "bootstrap.ign", now)
	}
	const short = 4 * time.Hour
	switch {
	case r.Certs == nil && s.Documents["bootstrap.ign"] != nil:
		r.Warnings.Addf(lab.Pos{}, "", "bootstrap.ign holds no certificates below /opt/openshift/tls: it is not what openshift-install create ignition-configs writes, and the cluster cannot come up with it")
	case r.Certs == nil:
	case r.Certs.Left <= 0:
		r.Errors.Addf(lab.Pos{}, "", "the certificates in bootstrap.ign ended %s ago (%s): run openshift-install create ignition-configs again, in a new folder", (-r.Certs.Left).Round(time.Minute), r.Certs.Subject)
	case r.Certs.Left < short:
		r.Warnings.Addf(lab.Pos{}, "", "the certificates in bootstrap.ign end in %s (%s): the installation has to be through by then, or run openshift-install create ignition-configs again, in a new folder", r.Certs.Left.Round(time.Minute), r.Certs.Subject)
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
	roles := map[string]string{lab.RoleBootstrap: "bootstrap.ign", lab.RoleControlPlane: "master.ign", lab.RoleWorker: "worker.ign"}
	return placeByHost(c, files, s.Documents, "ignition/{{.Host.Role}}.ign", func(h *lab.Host) string { return roles[h.Role] })
}
