package boot

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is what the desk answers from. It is immutable.
type Table struct {
	lab     *lab.Lab
	recipes map[*lab.Profile]*recipe.Recipe

	problems lab.Problems
}

// Compile parses the templates of every profile and renders them for one host of every kind, so that a missing value is
// found now and not at boot. Documents are read from the files folder, where they are already there; a document that
// changes later is read as it is then.
//
// The error is lab.Problems: what is wrong in the lab file, for every host alike. What keeps some hosts from booting is no
// error, those hosts are refused when they ask: see Problems.
func Compile(l *lab.Lab) (*Table, error) {
	t := &Table{lab: l, recipes: make(map[*lab.Profile]*recipe.Recipe, len(l.Profiles))}
	files := os.DirFS(l.Appliance.Files)
	var problems lab.Problems
	for _, p := range l.Profiles {
		r, faults := recipe.Compile(p, files)
		problems = append(problems, faults...)
		t.recipes[p] = r
	}
	if len(problems) > 0 {
		return nil, problems.Err()
	}
	all, some := t.check(append(samples(l.Hosts), guests(l)...))
	if len(all) > 0 {
		return nil, append(all, some...).Err() // whoever mends the one wants to see the other
	}
	t.problems = some
	return t, nil
}

// Problems are what keeps hosts from booting that were looked at when the table was made, once for each cause, with the
// place in the lab file or in the document.
func (t *Table) Problems() lab.Problems { return t.problems }

// CheckAll renders everything for every host and returns what would keep one from booting. Compile looks at one host of
// each kind where there are many.
func (t *Table) CheckAll() lab.Problems {
	all, some := t.check(append(bootable(t.lab.Hosts), guests(t.lab)...))
	problems := append(all, some...)
	_ = problems.Err() // sorts
	return problems
}

// fewHosts is up to how many hosts all of them are checked, whatever they have in common.
const fewHosts = 500

// A sort of hosts is all that templates can tell apart by more than a plain value: hosts of one sort render alike but
// for names and addresses, so that one of them stands for all. It keeps a lab of 10,000 hosts cheap to check.
type sort struct {
	profile *lab.Profile
	cluster *lab.Cluster
	network *lab.Network
	role    string
	vars    string
	ip, ip6 bool
}

// samples returns the hosts that are checked: all of a small lab, one of each sort of a large one.
func samples(hosts []*lab.Host) []*lab.Host {
	seen := map[sort]bool{}
	var out []*lab.Host
	for _, h := range bootable(hosts) {
		s := sort{h.Profile, h.Cluster, h.Network, h.Role, strings.Join(slices.Sorted(maps.Keys(h.Vars)), ","), h.IP.IsValid(), h.IP6.IsValid()}
		if len(hosts) <= fewHosts || !seen[s] {
			seen[s] = true
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *lab.Host) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// bootable returns the hosts that boot something.
func bootable(hosts []*lab.Host) []*lab.Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h *lab.Host) bool { return h.Profile == nil || len(h.MACs) == 0 })
}

// guests returns a machine without a reservation for each pool that boots a profile.
func guests(l *lab.Lab) (out []*lab.Host) {
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil {
				out = append(out, l.Guest(p, lab.MAC{0x02}, p.Range.First)) // a MAC of nobody's
			}
		}
	}
	return out
}

// Preview is what one host would get, for people who plan. The token in it is a placeholder.
type Preview struct {
	Script []byte
	Config *recipe.Document // nil: no config document, or not there yet
	Reason string           // why Config is nil though the profile has one
	// Documents are all that the machine may fetch by name, the config document first, and what the recipe adds; without
	// those that are not there yet.
	Documents []recipe.Document
}

// Image returns the path of the image that the virtual machine of that host is made from, relative to the files folder.
func (t *Table) Image(host string) (string, error) {
	r, d, err := t.machine(host)
	if err != nil {
		return "", err
	}
	return r.Image(d)
}

// ImageConfig renders the config document of a virtual machine that is made from an image and gets its document handed
// over by its hypervisor: there is no boot to fetch it in, and no token. It is nil if the profile has none.
func (t *Table) ImageConfig(host string) ([]byte, error) {
	r, d, err := t.machine(host)
	if err != nil || !r.HasConfig() {
		return nil, err
	}
	doc, err := r.Config(d, "")
	return doc.Body, err
}

// machine returns what a host that boots without us is rendered from. It goes by name, because who asks may still work
// with the lab before this one.
func (t *Table) machine(host string) (*recipe.Recipe, recipe.Data, error) {
	h := t.lab.Host(host)
	if h == nil || h.Profile == nil || len(h.MACs) == 0 {
		return nil, recipe.Data{}, fmt.Errorf("%s has no profile in this lab", host)
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], "")
	return r, d, err
}

// Preview renders what h gets while it is not installed. The error is why it would be refused.
func (t *Table) Preview(h *lab.Host) (Preview, error) {
	if h.Profile == nil || len(h.MACs) == 0 {
		return Preview{}, nil
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err == nil {
		err = firstFault(r, d)
	}
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	if h.Profile.NetBoots() {
		if p.Script, err = loaderFor(h.Chain).script(r, d); err != nil {
			return Preview{}, err
		}
	}
	for _, name := range r.Names(d) {
		doc, err := r.Config(d, name)
		if err == nil {
			p.Documents = append(p.Documents, doc)
		} else if p.Reason == "" {
			p.Reason = err.Error()
		}
	}
	if h.Profile.Config == "" {
		return p, nil
	}
	doc, err := r.Config(d, "")
	if err != nil {
		p.Reason = err.Error()
		return p, nil
	}
	p.Config = &doc
	return p, nil
}
