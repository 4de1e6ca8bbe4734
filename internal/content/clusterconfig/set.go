package clusterconfig

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// maxDocument bounds each file that is read; a bootstrap.ign has about 300 KB.
const maxDocument = 16 << 20

// A Set is what an installer wrote for one cluster.
type Set interface {
	// Check finds the cluster of the lab that the files are for, and compares them. The cluster is nil if there is none.
	Check(l *lab.Lab, now time.Time) (*lab.Cluster, Report)
	// Place says which file of the set belongs where the profiles of the cluster's hosts look for documents.
	Place(c *lab.Cluster, files Files) ([]Placement, lab.Problems)
}

// Files returns the documents that a host's profile names, below appliance.files: the config document first, empty if there is none.
type Files func(h *lab.Host) ([]string, error)

// A Placement is a file of a set, and one that a profile names.
type Placement struct {
	From string // name in the set
	To   string // slash-separated, below appliance.files
	Text []byte // as a template that renders to the file
}

// A Report is the result of a comparison. Errors keep the cluster from coming up.
type Report struct {
	Errors, Warnings lab.Problems
	Certs            *Expiry // nil: there are no certificates
}

// An Expiry is when the first certificate of a set ends.
type Expiry struct {
	Until   time.Time     `json:"until"`
	Left    time.Duration `json:"left"` // in nanoseconds; negative: since when
	Subject string        `json:"subject"`
	File    string        `json:"file"`
}

// certificate notes when a certificate ends.
func (r *Report) certificate(c *x509.Certificate, file string, now time.Time) {
	if c.NotBefore.After(now.Add(time.Minute)) {
		r.Errors.Addf(lab.Pos{}, "", "the certificate %s in %s begins on %s: the clock of this machine, or of the one that made it, is wrong", c.Subject.CommonName, file, c.NotBefore.Format(time.DateTime))
	}
	if r.Certs == nil || c.NotAfter.Before(r.Certs.Until) {
		r.Certs = &Expiry{Until: c.NotAfter, Left: c.NotAfter.Sub(now), Subject: c.Subject.CommonName, File: file}
	}
}

func certificates(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// nearestCluster says which cluster domain was probably meant, or which ones the lab has.
func nearestCluster(l *lab.Lab, domain string) string {
	var known []string
	for _, c := range l.Clusters {
		known = append(known, c.Domain)
	}
	if near := lab.Nearest(domain, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) == 0 {
		return "the lab has no cluster"
	}
	return "the lab has " + strings.Join(known, ", ")
}

// endpoints are the names and addresses at which the lab serves a cluster's API, the best first.
func endpoints(c *lab.Cluster) (hosts []string) {
	if c.Address.IsValid() || c.Health {
		hosts = append(hosts, "api."+c.Domain)
	}
	if c.Address.IsValid() {
		hosts = append(hosts, c.Address.String())
	}
	members := membersOf(c, lab.RoleControlPlane)
	if len(members) == 1 {
		hosts = append(hosts, members[0].FQDN)
		if members[0].IP.IsValid() {
			hosts = append(hosts, members[0].IP.String())
		}
	}
	return hosts
}

// clusterByEndpoint returns the cluster of the lab whose API a host name or address leads to, or nil.
func clusterByEndpoint(l *lab.Lab, host string) *lab.Cluster {
	i := slices.IndexFunc(l.Clusters, func(c *lab.Cluster) bool { return slices.Contains(endpoints(c), strings.ToLower(host)) })
	if i < 0 {
		return nil
	}
	return l.Clusters[i]
}

// onlyCluster returns the one cluster of the lab that has one of these kinds, or nil: whatever the files say, they are probably for that one,
// and what else is wrong with them is reported too.
func onlyCluster(l *lab.Lab, kinds ...lab.ClusterKind) (only *lab.Cluster) {
	for _, c := range l.Clusters {
		switch {
		case !slices.Contains(kinds, c.Kind):
		case only != nil:
			return nil
		default:
			only = c
		}
	}
	return only
}

func membersOf(c *lab.Cluster, role string) (hosts []*lab.Host) {
	for _, h := range c.Hosts {
		if h.Role == role {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// certSANs reports which of the cluster's name and address a certificate will lack. Installers add the endpoint's host themselves.
func (r *Report) certSANs(c *lab.Cluster, names load.Node, endpoint, remedy string) {
	if !c.Address.IsValid() {
		return
	}
	for _, want := range []string{"api." + c.Domain, c.Address.String()} {
		if want != endpoint && !slices.ContainsFunc(names.List(), func(n load.Node) bool { return strings.EqualFold(n.Text(), want) }) {
			r.Warnings.Addf(names.Pos(), "", "certSANs has no %s: clients that use it refuse the certificate; %s", want, remedy)
		}
	}
}

// subnets reports the networks of pods and services that overlap with each other or with those of the lab.
func (r *Report) subnets(l *lab.Lab, nodes []load.Node) {
	type named struct {
		prefix       netip.Prefix
		name, reason string // why nothing may overlap with it
	}
	var known []named
	for _, n := range l.Networks {
		for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if p.IsValid() {
				known = append(known, named{p, fmt.Sprintf("networks.%s (%s, %s)", n.Name, p, n.Pos), "pods could not reach its machines"})
			}
		}
	}
	for _, n := range nodes {
		p, err := netip.ParsePrefix(strings.TrimSpace(n.Text()))
		if err != nil {
			r.Errors.Addf(n.Pos(), "", "%q is no subnet: want one such as 10.244.0.0/16", n.Text())
			continue
		}
		p = p.Masked()
		for _, other := range known {
			if p.Overlaps(other.prefix) {
				r.Errors.Addf(n.Pos(), "", "%s overlaps with %s: %s; want another subnet", p, other.name, other.reason)
			}
		}
		known = append(known, named{p, fmt.Sprintf("%s (%s)", p, n.Pos()), "pods and services could have the same addresses"})
	}
}

// placeByHost places the one document that each host has; name returns empty for hosts without any. like is a config that works.
func placeByHost(c *lab.Cluster, files Files, documents map[string][]byte, like string, name func(*lab.Host) string) (copies []Placement, wrong lab.Problems) {
	placed := map[string]string{} // document, by path
	byRole, apart := map[string]string{}, "{{.Host.Role}} or {{.Host.Name}}"
	for _, h := range c.Hosts {
		document := name(h)
		if document == "" {
			continue
		}
		if of := byRole[h.Role]; of != "" && of != document {
			apart = "{{.Host.Name}}" // a host of its own document beside others of its role
		}
		byRole[h.Role] = document
		text, have := documents[document]
		paths, err := files(h)
		to := ""
		if len(paths) > 0 {
			to = paths[0]
		}
		switch {
		case err != nil:
			wrong.Addf(h.Pos, "hosts."+h.Name, "%v", err)
		case to == "":
			wrong.Addf(h.Pos, "hosts."+h.Name, "has no config document: want profile with config: %s", like)
		case !have:
			wrong.Addf(h.Pos, "hosts."+h.Name, "needs %s, which is missing in the folder", document)
		case placed[to] != "" && placed[to] != document:
			wrong.Addf(h.Pos, "hosts."+h.Name, "reads %s, where %s belongs too: want %s in the profile's config", to, placed[to], apart)
		case placed[to] == "":
			copies = append(copies, Placement{From: document, To: to, Text: asTemplate(text)})
		}
		placed[to] = document
	}
	return copies, wrong
}

// asTemplate returns a document as bootlab's templates read it, so that it renders to itself.
func asTemplate(text []byte) []byte {
	return []byte(strings.ReplaceAll(string(text), "{{", `{{"{{"}}`))
}

// unreadable is the error of what an admin named and cannot be read, and says what it should be.
func unreadable(path string, err error, want string) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("read %s: %w: want %s", path, err, want)
}
