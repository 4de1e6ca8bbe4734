package boot

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is what the boot service answers from, compiled from one lab. It is immutable, but for what is measured by it.
type Table struct {
	lab     *lab.Lab
	recipes map[*lab.Profile]*recipe.Recipe

	checked  []*lab.Host // by Compile
	warnings lab.Problems
	files    *recordingFS
	refusals refusals
}

// Compile parses the templates of every profile and renders them for one host of every kind, so that a missing value is found now
// and not at boot. Documents that exist are read from the files folder; at boot they are read again.
//
// The error is lab.Problems: the errors of the lab file that affect every host. What keeps only some hosts from booting is no error;
// those hosts are refused when they ask: see Problems.
func Compile(l *lab.Lab) (*Table, error) {
	t := &Table{lab: l, recipes: make(map[*lab.Profile]*recipe.Recipe, len(l.Profiles)), files: &recordingFS{FS: os.DirFS(l.Appliance.Files), dir: l.Appliance.Files}}
	var problems lab.Problems
	for _, p := range l.Profiles {
		r, faults := recipe.Compile(p, t.files)
		problems = append(problems, faults...)
		t.recipes[p] = r
	}
	if len(problems) > 0 {
		return nil, problems.Err()
	}
	t.checked = append(samples(l.Hosts), poolMachines(l)...)
	found, warnings := t.check(t.checked)
	if slices.ContainsFunc(found, func(r Refused) bool { return r.everyone }) {
		return nil, problemsOf(found).Err()
	}
	t.refusals.all, t.warnings = found, warnings
	return t, nil
}

// Findings returns what Compile and CheckAll would find in what these hosts boot, of a lab that has errors elsewhere: what keeps them from
// booting, and what is ignored. An error of a profile, which Compile returns, is left out with the hosts that boot it.
func Findings(l *lab.Lab, hosts []*lab.Host) (faults, warnings lab.Problems) {
	t := &Table{lab: l, recipes: map[*lab.Profile]*recipe.Recipe{}, files: &recordingFS{FS: os.DirFS(l.Appliance.Files), dir: l.Appliance.Files}}
	for _, p := range l.Profiles {
		if r, wrong := recipe.Compile(p, t.files); len(wrong) == 0 {
			t.recipes[p] = r
		}
	}
	hosts = slices.DeleteFunc(bootable(hosts), func(h *lab.Host) bool { return t.recipes[h.Profile] == nil })
	found, warnings := t.check(hosts)
	found = slices.DeleteFunc(found, func(r Refused) bool { return r.everyone })
	faults = problemsOf(found)
	_ = faults.Err() // sorts
	return faults, warnings
}

// A recordingFS is the files folder, and notes which files were read.
type recordingFS struct {
	fs.FS
	dir  string
	read sync.Map
}

// maxDocument bounds the documents and templates that are read, in octets. Those with whole files inside have some megabytes.
const maxDocument = 64 << 20

// ReadFile implements fs.ReadFileFS, for regular files.
func (n *recordingFS) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	text, err := regular.Read(filepath.Join(n.dir, filepath.FromSlash(name)), maxDocument)
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: of.Op, Path: name, Err: of.Err} // without the folder, as fs.ReadFile
	}
	if err == nil {
		n.read.Store(name, true)
	}
	return text, err
}

// Files returns the documents that Compile has read, and those that were rendered since.
func (t *Table) Files() (names []string) {
	t.files.read.Range(func(name, _ any) bool {
		names = append(names, filepath.Join(t.lab.Appliance.Files, filepath.FromSlash(name.(string))))
		return true
	})
	slices.Sort(names)
	return names
}

// Warnings are what the readers of documents will ignore, such as keys that Ignition does not know: each once, of the hosts that Compile
// checked.
func (t *Table) Warnings() lab.Problems { return t.warnings }

// CheckAll renders everything for every host and returns what would keep one from booting. Compile checks one host of each kind where
// there are many.
func (t *Table) CheckAll() lab.Problems {
	found, _ := t.check(Machines(t.lab))
	all := problemsOf(found)
	_ = all.Err() // sorts
	return all
}

// fewHosts is the size of a lab up to which Compile checks all hosts.
const fewHosts = 500

// A hostKind holds the properties that decide what a template renders or a boot loader refuses. Hosts of one kind render alike except for
// names and addresses, so checking one of them is enough. It keeps a lab of 10,000 hosts cheap to check.
type hostKind struct {
	profile *lab.Profile
	cluster *lab.Cluster
	network *lab.Network
	role    string
	vars    string
	chain   lab.Chain

	ip, ip6, serial bool
}

// samples returns the hosts that Compile checks: all of a small lab, one of each kind of a large one.
func samples(hosts []*lab.Host) []*lab.Host {
	seen := map[hostKind]bool{}
	var out []*lab.Host
	for _, h := range bootable(hosts) {
		k := hostKind{h.Profile, h.Cluster, h.Network, h.WrittenRole(), strings.Join(slices.Sorted(maps.Keys(h.Vars)), ","), h.Chain,
			h.IP.IsValid(), h.IP6.IsValid(), h.Serial != ""}
		if len(hosts) <= fewHosts || !seen[k] {
			seen[k] = true
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *lab.Host) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Machines returns all that a lab boots: its hosts with a profile, and for each pool with one a machine.
func Machines(l *lab.Lab) []*lab.Host { return append(bootable(l.Hosts), poolMachines(l)...) }

// bootable returns the hosts that boot something.
func bootable(hosts []*lab.Host) []*lab.Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h *lab.Host) bool { return h.Profile == nil || len(h.MACs) == 0 })
}

// anyMachine is the MAC of a machine that stands for all machines of a pool.
var anyMachine = lab.MAC{0x02}

// poolMachines returns a machine without a reservation for each pool that boots a profile.
func poolMachines(l *lab.Lab) (out []*lab.Host) {
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil {
				out = append(out, l.PoolHost(p, anyMachine, p.Range.First))
			}
		}
	}
	return out
}

// check renders everything for these hosts, on all processors. It returns what keeps them from booting, and what is ignored: each cause once.
func (t *Table) check(hosts []*lab.Host) (found []Refused, warnings lab.Problems) {
	faults, ignored := make([][]recipe.Fault, len(hosts)), make([][]recipe.Fault, len(hosts))
	var wait sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(hosts))
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(hosts); i += workers {
				faults[i], ignored[i] = t.faults(hosts[i])
			}
		})
	}
	wait.Wait()
	return t.causes(hosts, faults), problemsOf(t.causes(hosts, ignored))
}

// causes returns the faults of hosts: each cause once, with the hosts that have it.
func (t *Table) causes(hosts []*lab.Host, faults [][]recipe.Fault) (all []Refused) {
	of, at := [][]*lab.Host{}, map[lab.Problem]int{}
	for i, h := range hosts {
		for _, f := range faults[i] {
			cause := t.cause(h, f)
			n, known := at[cause]
			if !known {
				n, at[cause] = len(all), len(all)
				all, of = append(all, Refused{cause: cause, everyone: f.Everyone()}), append(of, nil)
			}
			of[n] = append(of[n], h)
		}
	}
	for i, r := range all {
		all[i] = r.of(of[i])
	}
	return all
}

// placeholder is the token in scripts and documents that are rendered without a boot.
const placeholder = "TOKEN"

// faults renders everything for one host, and returns what is wrong and what is ignored.
func (t *Table) faults(h *lab.Host) (faults, ignored []recipe.Fault) {
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err != nil {
		return []recipe.Fault{{Key: "config", Err: err}}, nil
	}
	return r.Faults(d), r.Warnings(d)
}

// cause returns a fault of a host with its place, in a document or at the key of the profile, and without the host.
func (t *Table) cause(h *lab.Host, f recipe.Fault) lab.Problem {
	p := lab.Problem{Pos: h.Profile.PosOf(f.Key), Key: "profiles." + h.Profile.Name + "." + f.Key, Message: recipe.Reason(f.Err)}
	var doc *recipe.DocumentError
	if errors.As(f.Err, &doc) {
		p.Pos = lab.Pos{File: filepath.Join(t.lab.Appliance.Files, filepath.FromSlash(doc.File)), Line: max(doc.Line, 1), Column: max(doc.Column, 1)}
		p.Message, p.Secret = recipe.Reason(doc.Err), true
	}
	return p
}
