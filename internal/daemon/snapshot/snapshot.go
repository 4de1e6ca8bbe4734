package snapshot

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/tftpd"
	"github.com/bootlab/bootlab/virt"
)

// A Snapshot is one lab and the table of each server.
type Snapshot struct {
	Gen uint64    // counts the labs since the daemon started, from 1
	At  time.Time // when it was compiled
	Lab *lab.Lab

	DHCP *dhcpd.Table
	TFTP *tftpd.Table
	DNS  *dnsd.Table // synthesised serials are 0 until the daemon assigns them
	HTTP *httpd.Table
	LB   *lbproxy.Table
	Virt *virt.Table
	Boot *boot.Table

	Files *files.Files // which files of the lab may be fetched, by TFTP and HTTP alike

	missing lab.Problems // of IfMissing, those that did not exist when it was compiled, of paths with templates
}

// Compile makes the snapshot of l, with what dynamic updates have made of its zones. All problems of all servers are reported at once, as
// lab.Problems where they have a place in the lab file.
func Compile(l *lab.Lab, updates ...dnsd.RRSet) (*Snapshot, error) {
	s := &Snapshot{Lab: l}
	var errs [4]error
	s.DHCP = dhcpd.Compile(l)
	s.Files, errs[0] = files.Compile(l)
	s.TFTP, s.HTTP = tftpd.Compile(l, s.Files), httpd.Compile(l, s.Files)
	dns, err := dnsd.Compile(l, readDNSFile, updates...)
	errs[1] = err
	s.LB = lbproxy.Compile(l)
	s.Virt, errs[2] = virt.Compile(l)
	s.Boot, errs[3] = boot.Compile(l)
	if err := join(errs[:]); err != nil {
		return nil, err
	}
	s.UseDNS(dns)
	s.Virt.Files = vmFiles{s.Boot, s.Files}
	s.missing = slices.DeleteFunc(slices.Clone(s.Files.IfMissing()), func(p *lab.Problem) bool { return !regular.Missing(p.Path) })
	return s, nil
}

// UseDNS makes t the table of DNS in s, which is not in force yet. DHCP announces the names that clients have by it.
func (s *Snapshot) UseDNS(t *dnsd.Table) { s.DNS, s.DHCP = t, s.DHCP.WithNames(t.ClientName) }

// vmFiles are what the virtual machines of a lab are made from.
type vmFiles struct {
	boot  *boot.Table
	files *files.Files
}

// Image implements virt.Files.
func (f vmFiles) Image(host string) (string, func() (fs.File, error), error) {
	name, err := f.boot.Image(host)
	return name, func() (fs.File, error) { return f.files.Open(name) }, err
}

// Documents implements virt.Files.
func (f vmFiles) Documents(host string) (all []virt.Document, err error) {
	documents, err := f.boot.ImageDocuments(host)
	for _, doc := range documents {
		all = append(all, virt.Document{Name: doc.Name, Body: doc.Body})
	}
	return all, err
}

// IfMissing are the warnings that hold while a file does not exist that the lab names, or that its paths lead to for a machine.
func (s *Snapshot) IfMissing() lab.Problems {
	return slices.Concat(s.Lab.IfMissing, s.Files.IfMissing())
}

// Warnings are the warnings of the lab and its zones, and the problems that keep single zones from being served and single hosts from
// booting.
func (s *Snapshot) Warnings() lab.Problems {
	dns, others := s.TableWarnings()
	return slices.Concat(s.Lab.Warnings, s.missing, dns, s.Faults(), others)
}

// TableWarnings are the warnings of the tables. Those of DNS are about files that are missing or cannot be read, and the zones and servers that
// need them.
func (s *Snapshot) TableWarnings() (dns, others lab.Problems) {
	return s.DNS.Warnings(), slices.Concat(s.DHCP.Warnings(), s.Boot.Warnings())
}

// Faults are the errors that keep single zones from being served and single hosts from booting, while everything else is served.
func (s *Snapshot) Faults() lab.Problems { return slices.Concat(s.DNS.BadFiles(), s.Boot.Problems()) }

// An UpdatedRecord is a record that a dynamic update has put into a zone.
type UpdatedRecord struct {
	Name, Type string
	Data       string // as in a zone file
	Key        string // that the update was signed with
}

// Updated returns the records of dynamic updates that are served, by zone, name and type.
func (s *Snapshot) Updated() (all []UpdatedRecord) {
	for _, set := range s.DNS.Updates() {
		for _, line := range set.Records() {
			f := strings.SplitN(line, " ", 5) // owner, TTL, class, type, data
			all = append(all, UpdatedRecord{Name: set.Name, Type: set.Type, Data: f[len(f)-1], Key: strings.TrimSuffix(set.Key, ".")})
		}
	}
	return all
}

// ZoneProblems returns what is wrong in the records and the files of the zones that a lab with other problems has, and which files are missing.
// It does not compare them with what is derived from hosts and clusters, which may be wrong because of those.
func ZoneProblems(l *lab.Lab) (problems, missing lab.Problems) {
	records, files := &lab.Lab{Domain: l.Domain, Dir: l.Dir}, &lab.Lab{Domain: l.Domain, Dir: l.Dir}
	for _, z := range l.Zones {
		alone := &lab.Zone{Pos: z.Pos, Origin: z.Origin, File: z.File, Lines: z.Lines}
		switch {
		case z.File != "":
			files.Zones = append(files.Zones, alone)
		case len(z.Lines) > 0:
			records.Zones = append(records.Zones, alone)
		}
	}
	if _, err := dnsd.Compile(records, readDNSFile); err != nil {
		_ = errors.As(err, &problems) // it is always Problems
	}
	if t, err := dnsd.Compile(files, readDNSFile); err == nil {
		problems, missing = append(problems, t.BadFiles()...), t.NoFiles()
	}
	return problems, missing
}

// Sound returns the hosts of a lab with these problems that none of them is about: neither the host, nor what it boots, nor its network or
// cluster, nor what all hosts have in common.
func Sound(l *lab.Lab, problems lab.Problems) (hosts []*lab.Host) {
	wrong := map[string]bool{} // networks, clusters: one of them; networks.lan: that one
	for _, p := range problems {
		section, rest, _ := strings.Cut(p.Key, ".")
		switch section {
		case "hosts", "profiles", "networks", "clusters":
			name, _, _ := strings.Cut(rest, ".")
			wrong[section], wrong[section+"."+name] = true, true
			if name == "" {
				return nil
			}
		case "dns", "balancers", "hypervisors", "redfish": // no template sees them
		default:
			return nil
		}
	}
	for _, h := range l.Hosts {
		switch {
		case wrong["hosts."+h.Name]:
		case h.Profile == nil, wrong["profiles."+h.Profile.Name]:
		case wrong["networks"] && (h.Network == nil || wrong["networks."+h.Network.Name]):
		case wrong["clusters"] && (h.Cluster == nil || wrong["clusters."+h.Cluster.Name]):
		default:
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// CheckAll renders what every host boots and returns all problems, those in zone files included. Compile renders one host of each kind
// where there are many, and is faster.
func (s *Snapshot) CheckAll() lab.Problems { return slices.Concat(s.DNS.BadFiles(), s.Boot.CheckAll()) }

// join returns all problems in the order of the file, once each, followed by errors of another kind.
func join(errs []error) error {
	var problems lab.Problems
	var others []error
	seen := map[string]bool{}
	for _, err := range errs {
		var ps lab.Problems
		switch {
		case err == nil:
		case !errors.As(err, &ps):
			others = append(others, err)
		default:
			for _, p := range ps {
				if !seen[p.Error()] {
					seen[p.Error()] = true
					problems = append(problems, p)
				}
			}
		}
	}
	return errors.Join(append([]error{problems.Err()}, others...)...)
}
