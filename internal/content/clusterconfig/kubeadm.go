package clusterconfig

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// The documents of kubeadm that are compared.
const (
	kubeadmCluster = "ClusterConfiguration"
	kubeadmInit    = "InitConfiguration"
	kubeadmJoin    = "JoinConfiguration"
)

// kubeadmNames is the pattern of the files in a folder that are read.
const kubeadmNames = "*.y*ml"

// kubeadmKinds are the kinds of kubeadm's API.
var kubeadmKinds = []string{kubeadmCluster, kubeadmInit, kubeadmJoin, "ResetConfiguration", "UpgradeConfiguration"}

// What kubeadm config print has as examples.
const (
	kubeadmToken    = "abcdef.0123456789abcdef"
	kubeadmAddress  = "1.2.3.4"
	kubeadmTokenTTL = 24 * time.Hour
)

// kubeadmVersions are the versions of the API that kubeadm 1.27 and newer read.
var kubeadmVersions = []string{"kubeadm.k8s.io/v1beta3", "kubeadm.k8s.io/v1beta4"}

// A Kubeadm is a file of kubeadm's configuration, or a folder of them.
type Kubeadm struct {
	folder    bool // all that the machines need is expected in it
	files     map[string][]byte
	documents []kubeadmDocument // in the order of the files
}

// A kubeadmDocument is a document of kubeadm's API.
type kubeadmDocument struct {
	load.Node
	file, kind string
}

// ReadKubeadm reads a folder of configuration files, or one file.
func ReadKubeadm(at string) (*Kubeadm, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, unreadable(at, err, "a configuration file of kubeadm, or a folder of them")
	}
	names := []string{at}
	if info.IsDir() {
		if names, err = filepath.Glob(filepath.Join(at, kubeadmNames)); err != nil {
			return nil, err
		}
	}
	s := &Kubeadm{folder: info.IsDir(), files: map[string][]byte{}}
	for _, name := range names {
		if err := s.read(name); err != nil {
			return nil, err
		}
	}
	if len(s.documents) == 0 {
		return nil, fmt.Errorf("%s has no configuration of kubeadm: kubeadm config print init-defaults and kubeadm config print join-defaults print examples", at)
	}
	return s, nil
}

func (s *Kubeadm) read(name string) error {
	text, err := regular.Read(name, maxDocument)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	documents, err := load.YAMLDocuments(name, text)
	if err != nil {
		return err
	}
	for _, d := range documents {
		if strings.HasPrefix(d.At("apiVersion").Text(), "kubeadm.k8s.io/") {
			s.files[filepath.Base(name)] = text
			s.documents = append(s.documents, kubeadmDocument{d, filepath.Base(name), d.At("kind").Text()})
		}
	}
	return nil
}

// of returns the documents of a kind.
func (s *Kubeadm) of(kind string) (all []kubeadmDocument) {
	for _, d := range s.documents {
		if d.kind == kind {
			all = append(all, d)
		}
	}
	return all
}

// Check implements Set.
func (s *Kubeadm) Check(l *lab.Lab, now time.Time) (*lab.Cluster, Report) {
	var r Report
	for _, d := range s.documents {
		if v := d.At("apiVersion"); !slices.Contains(kubeadmVersions, v.Text()) {
			r.Errors.Addf(v.Pos(), "", "version %s is none that kubeadm reads today: want %s; kubeadm config migrate makes it", v.Text(), kubeadmVersions[len(kubeadmVersions)-1])
		}
		if !slices.Contains(kubeadmKinds, d.kind) {
			hint := "want one of " + strings.Join(kubeadmKinds, ", ")
			if near := lab.Nearest(d.kind, kubeadmKinds); near != "" {
				hint = "did you mean " + near + "?"
			}
			r.Errors.Addf(d.At("kind").Pos(), "", "kind %q is not known to kubeadm: %s", d.kind, hint)
		}
	}
	c := s.cluster(l, &r)
	if c == nil {
		return nil, r
	}
	if c.Kind != lab.Kubernetes {
		r.Errors.Addf(c.Pos, "clusters."+c.Name+".kind", "is %s: want kubernetes", c.Kind)
	}
	for _, d := range s.of(kubeadmCluster) {
		names := d.At("apiServer", "certSANs")
		endpoint, _, _ := splitEndpoint(d.At("controlPlaneEndpoint").Text())
		if names.Exists() {
			r.certSANs(c, names, endpoint, "add it")
		}
		var subnets []load.Node
		for _, key := range []string{"podSubnet", "serviceSubnet"} {
			if n := d.At("networking", key); n.Exists() {
				subnets = append(subnets, n)
			}
		}
		r.subnets(l, subnets)
	}
	for _, d := range s.of(kubeadmInit) {
		s.init(c, d, &r, now)
	}
	for _, d := range s.of(kubeadmJoin) {
		s.join(d, &r)
	}
	return c, r
}

// splitEndpoint splits HOST or HOST:PORT; the port is empty where there is none.
func splitEndpoint(endpoint string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return strings.Trim(endpoint, "[]"), "", endpoint != "" && !strings.Contains(endpoint, "/")
	}
	return host, port, host != ""
}

// cluster finds the cluster of the lab that the endpoints lead to.
func (s *Kubeadm) cluster(l *lab.Lab, r *Report) (c *lab.Cluster) {
	var ends []load.Node
	for _, d := range s.of(kubeadmCluster) {
		if end := d.At("controlPlaneEndpoint"); end.Exists() {
			ends = append(ends, end)
		} else {
			r.Errors.Addf(d.Pos(), "", "%s has no controlPlaneEndpoint: machines would join the first one's address, not the cluster's; %s", d.kind, wantedEndpoint(l))
		}
	}
	for _, d := range s.of(kubeadmJoin) {
		if end := d.At("discovery", "bootstrapToken", "apiServerEndpoint"); end.Exists() {
			ends = append(ends, end)
		}
	}
	for _, end := range ends {
		host, port, ok := splitEndpoint(end.Text())
		at := clusterByEndpoint(l, host)
		switch {
		case !ok || at == nil:
			r.Errors.Addf(end.Pos(), "", "endpoint %q leads to no cluster of the lab: %s", end.Text(), wantedEndpoint(l))
		case port != "6443" && port != "":
			r.Errors.Addf(end.Pos(), "", "endpoint %s is not where the lab serves cluster %s: want %s:6443", end.Text(), at.Name, host)
		case c != nil && at != c:
			r.Errors.Addf(end.Pos(), "", "endpoint %s leads to cluster %s, and another document to %s", end.Text(), at.Name, c.Name)
		}
		if c == nil {
			c = at
		}
	}
	if len(s.documents) > 0 && len(ends) == 0 && len(r.Errors) == 0 {
		r.Errors.Addf(s.documents[0].Pos(), "", "no document says which cluster it is for: %s", wantedEndpoint(l))
	}
	if c == nil {
		return onlyCluster(l, lab.Kubernetes)
	}
	return c
}

// wantedEndpoint says which endpoints the lab has.
func wantedEndpoint(l *lab.Lab) string {
	var all []string
	for _, c := range l.Clusters {
		if at := endpoints(c); c.Kind == lab.Kubernetes && len(at) > 0 {
			all = append(all, at[0]+":6443")
		}
	}
	if len(all) == 0 {
		return "the lab has no cluster of kind kubernetes with an address"
	}
	return "want " + strings.Join(all, " or ")
}

// init compares what the first control-plane machine runs.
func (s *Kubeadm) init(c *lab.Cluster, d kubeadmDocument, r *Report, now time.Time) {
	masters := membersOf(c, lab.RoleControlPlane)
	if at := d.At("localAPIEndpoint", "advertiseAddress"); at.Exists() && !slices.ContainsFunc(masters, func(h *lab.Host) bool { return h.IP.String() == at.Text() }) {
		hint := "want that of a control-plane host"
		if len(masters) > 0 {
			hint = fmt.Sprintf("want %s, of %s", masters[0].IP, masters[0].Name)
		}
		if at.Text() == kubeadmAddress {
			hint = "it is the example of kubeadm config print; " + hint
		}
		r.Errors.Addf(at.Pos(), "", "advertiseAddress %s is no control-plane host of cluster %s: %s", at.Text(), c.Name, hint)
	}
	if port := d.At("localAPIEndpoint", "bindPort"); port.Exists() && port.Text() != "6443" {
		r.Errors.Addf(port.Pos(), "", "bindPort %s is not where the lab's balancer expects the API server: want 6443", port.Text())
	}
	s.node(c, d, r)
	s.certificateKey(d.At("certificateKey"), r)
	for _, t := range d.At("bootstrapTokens").List() {
		s.token(t.At("token"), r)
		s.expiry(t, r, now)
	}
}

// expiry reports a token that ended, or that ends before the other machines have joined.
func (s *Kubeadm) expiry(t load.Node, r *Report, now time.Time) {
	if at := t.At("expires"); at.Exists() {
		until, err := time.Parse(time.RFC3339, at.Text())
		switch {
		case err != nil:
			r.Errors.Addf(at.Pos(), "", "expires %q is no time: want one such as %s", at.Text(), now.Add(kubeadmTokenTTL).UTC().Format(time.RFC3339))
		case !until.After(now):
			r.Errors.Addf(at.Pos(), "", "the bootstrap token ended %s ago: want a later time, or ttl: 24h0m0s", now.Sub(until).Round(time.Minute))
		case until.Sub(now) < time.Hour:
			r.Warnings.Addf(at.Pos(), "", "the bootstrap token ends in %s: machines that are not installed by then cannot join", until.Sub(now).Round(time.Minute))
		}
	}
	ttl := t.At("ttl")
	switch valid, err := time.ParseDuration(ttl.Text()); {
	case !ttl.Exists():
	case err != nil:
		r.Errors.Addf(ttl.Pos(), "", "ttl %q is no duration: want one such as 24h0m0s", ttl.Text())
	case valid > 0 && valid < time.Hour:
		r.Warnings.Addf(ttl.Pos(), "", "the bootstrap token ends %s after kubeadm init: machines that are not installed by then cannot join", valid)
	}
}

// tokens matches bootstrap tokens.
var tokens = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

func (s *Kubeadm) token(t load.Node, r *Report) {
	switch {
	case !tokens.MatchString(t.Text()):
		r.secret(&r.Errors, t, "is no bootstrap token: want 6 and 16 letters and digits with a dot between, as kubeadm token generate prints one")
	case t.Text() == kubeadmToken:
		r.secret(&r.Errors, t, "the token is the example of kubeadm config print, which everybody knows: want one of kubeadm token generate")
	}
}

// certificateKey checks the key with which kubeadm init --upload-certs hands certificates to further control-plane machines.
func (s *Kubeadm) certificateKey(n load.Node, r *Report) {
	if key, err := hex.DecodeString(n.Text()); n.Exists() && (err != nil || len(key) != 32) {
		r.secret(&r.Errors, n, "is no certificate key: want one of kubeadm certs certificate-key")
	}
}

// node checks the name and the container runtime of the machine that a document is for.
func (s *Kubeadm) node(c *lab.Cluster, d kubeadmDocument, r *Report) {
	name := d.At("nodeRegistration", "name")
	if name.Exists() && !slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return name.Text() == h.Name || name.Text() == h.FQDN }) {
		var known []string
		for _, h := range c.Hosts {
			known = append(known, h.Name)
		}
		hint := "want no name, which is the machine's own"
		if near := lab.Nearest(name.Text(), known); near != "" {
			hint = "did you mean " + near + "?"
		}
		r.Errors.Addf(name.Pos(), "", "node name %s is no host of cluster %s: %s", name.Text(), c.Name, hint)
	}
	if socket := d.At("nodeRegistration", "criSocket"); socket.Exists() && !strings.HasPrefix(socket.Text(), "unix:///") {
		r.Errors.Addf(socket.Pos(), "", "criSocket %s is no URL of a socket: want one such as unix:///run/containerd/containerd.sock", socket.Text())
	}
}

// join compares what the other machines run with what the first one does.
func (s *Kubeadm) join(d kubeadmDocument, r *Report) {
	b := d.At("discovery", "bootstrapToken")
	if t := b.At("token"); t.Exists() {
		s.token(t, r)
		s.sameToken(t, r)
	}
	if t := d.At("discovery", "tlsBootstrapToken"); t.Exists() {
		s.sameToken(t, r)
	}
	unsafe := b.At("unsafeSkipCAVerification")
	switch {
	case !b.Exists():
	case unsafe.Text() == "true":
		r.Warnings.Addf(unsafe.Pos(), "", "machines would join any server that answers at the endpoint: want caCertHashes, as kubeadm token create --print-join-command prints them")
	case len(b.At("caCertHashes").List()) == 0:
		r.Errors.Addf(b.Pos(), "", "bootstrapToken has neither caCertHashes nor unsafeSkipCAVerification: kubeadm join refuses it; kubeadm token create "+
			"--print-join-command prints the hash after kubeadm init")
	}
	key := d.At("controlPlane", "certificateKey")
	s.certificateKey(key, r)
	for _, first := range s.of(kubeadmInit) {
		switch uploaded := first.At("certificateKey"); {
		case !key.Exists():
		case !uploaded.Exists():
			r.secret(&r.Errors, key, "certificateKey is one that %s (%s) lacks: kubeadm init --upload-certs would make a random one, and the machine could not "+
				"read the cluster's certificates; want the same in both", first.kind, first.Pos())
		case key.Text() != uploaded.Text():
			r.secret(&r.Errors, key, "certificateKey is not that of %s (%s): the machine could not read the cluster's certificates", first.kind, uploaded.Pos())
		}
		mine, its := d.At("nodeRegistration", "criSocket"), first.At("nodeRegistration", "criSocket")
		if mine.Exists() && its.Exists() && runtimeOf(mine.Text()) != runtimeOf(its.Text()) {
			r.Warnings.Addf(mine.Pos(), "", "criSocket %s is of another container runtime than %s (%s)", mine.Text(), its.Text(), its.Pos())
		}
	}
}

// sameToken reports a token that kubeadm init would not make.
func (s *Kubeadm) sameToken(t load.Node, r *Report) {
	var made []load.Node
	for _, d := range s.of(kubeadmInit) {
		for _, b := range d.At("bootstrapTokens").List() {
			made = append(made, b.At("token"))
		}
	}
	if len(made) == 0 {
		r.Warnings.Addf(t.Pos(), "", "the token was not compared: no %s here has bootstrapTokens", kubeadmInit)
		return
	}
	if !slices.ContainsFunc(made, func(n load.Node) bool { return n.Text() == t.Text() }) {
		r.secret(&r.Errors, t, "the token is none that %s makes (%s): want the same in both", kubeadmInit, made[0].Pos())
	}
}

// runtimeOf returns the container runtime that a socket is of: containerd, crio, cri-dockerd.
func runtimeOf(socket string) string { return strings.TrimSuffix(path.Base(socket), ".sock") }

// Place implements Set: a file belongs wherever the profile of a host names one of that name.
func (s *Kubeadm) Place(c *lab.Cluster, files Files) (copies []Placement, wrong lab.Problems) {
	first := ""
	placed, folders := map[string]bool{}, map[string]bool{}
	without := map[*lab.Host][]string{} // hosts that get no file, and what their profiles name
	for _, h := range c.Hosts {
		paths, err := files(h)
		if err != nil {
			wrong.Addf(h.Pos, "hosts."+h.Name, "%v", err)
			continue
		}
		without[h] = paths
		for _, to := range paths {
			text, have := s.files[path.Base(to)]
			if !have {
				continue
			}
			delete(without, h)
			if reason := s.fits(h, path.Base(to), &first); reason != "" {
				wrong.Addf(h.Pos, "hosts."+h.Name, "reads %s, %s", to, reason)
			}
			if !placed[to] {
				copies = append(copies, Placement{From: path.Base(to), To: to, Text: asTemplate(text)})
			}
			placed[to], folders[path.Dir(to)] = true, true
		}
	}
	for h, paths := range without {
		for _, to := range paths { // documents of other programs are elsewhere
			if like, _ := path.Match(kubeadmNames, path.Base(to)); like && s.folder && folders[path.Dir(to)] {
				wrong.Addf(h.Pos, "hosts."+h.Name, "reads %s, and the folder has no configuration of kubeadm of that name: want it there, or one file instead of the folder", to)
			}
		}
	}
	return copies, wrong
}

// fits says why a file is not for that host; first is the host that runs kubeadm init, once there is one.
func (s *Kubeadm) fits(h *lab.Host, file string, first *string) string {
	for _, d := range s.documents {
		if d.file != file {
			continue
		}
		control := d.kind == kubeadmInit || d.At("controlPlane").Exists()
		switch {
		case d.kind != kubeadmInit && d.kind != kubeadmJoin:
		case d.kind == kubeadmInit && *first != "":
			return fmt.Sprintf("with which %s runs kubeadm init: two clusters would begin; want a %s with controlPlane for one of them", *first, kubeadmJoin)
		case control && h.Role != lab.RoleControlPlane:
			return fmt.Sprintf("which makes a control-plane machine of it (%s), and has role %s", d.Pos(), h.Role)
		case !control && h.Role == lab.RoleControlPlane:
			return fmt.Sprintf("which makes a worker of it (%s), and has role %s: want controlPlane in the document", d.Pos(), h.Role)
		case d.kind == kubeadmInit:
			*first = h.Name
		}
	}
	return ""
}

// Files returns the names of the files, sorted.
func (s *Kubeadm) Files() []string { return slices.Sorted(maps.Keys(s.files)) }

// Runtime returns the container runtime whose socket a file names, as its package is called; empty: none.
func (s *Kubeadm) Runtime(file string) string {
	for _, d := range s.documents {
		if socket := d.At("nodeRegistration", "criSocket"); d.file == file && socket.Exists() {
			return strings.Replace(runtimeOf(socket.Text()), "crio", "cri-o", 1)
		}
	}
	return ""
}

// Init returns the file with which kubeadm init runs, and the address of the machine that it names; empty and invalid: not known.
func (s *Kubeadm) Init() (file string, at netip.Addr) {
	for _, d := range s.of(kubeadmInit) {
		at, _ = netip.ParseAddr(d.At("localAPIEndpoint", "advertiseAddress").Text())
		return d.file, at
	}
	return "", at
}
