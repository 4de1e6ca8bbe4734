package boot

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Refused is an error that keeps hosts from booting: Compile found it, or a host was refused for it since.
type Refused struct {
	*lab.Problem             // its message names the hosts
	Hosts        []*lab.Host // that are refused for it, or would be, by name
	Since        time.Time   // zero: since Compile

	cause    lab.Problem // Problem without the hosts
	everyone bool        // it affects every host: the lab file has to be changed
}

// of returns r with these hosts. Machines without a reservation, which could be any number, are the last, so that the limit drops none of the lab.
func (r Refused) of(hosts []*lab.Host) Refused {
	slices.SortFunc(hosts, func(a, b *lab.Host) int {
		switch inLab := a.Pool == nil; {
		case inLab == (b.Pool == nil):
			return cmp.Compare(a.Name, b.Name)
		case inLab:
			return -1
		}
		return 1
	})
	hosts = slices.CompactFunc(hosts, func(a, b *lab.Host) bool { return a.Name == b.Name && a.Pool == b.Pool })
	r.Hosts = hosts[:min(len(hosts), maxRefused)]
	p := r.cause
	p.Message = "for " + whom(r.Hosts) + ": " + p.Message
	r.Problem = &p
	return r
}

// mostNamed is how many of the hosts with an error its message names.
const mostNamed = 10

// whom names hosts in an error, and the pools whose machines poolMachines stands for.
func whom(all []*lab.Host) string {
	var hosts, pools, parts []string
	for _, h := range all {
		if h.Pool != nil && slices.Equal(h.MACs, []lab.MAC{anyMachine}) {
			pools = append(pools, h.Pool.Network.Name+"/"+h.Pool.Name)
		} else {
			hosts = append(hosts, h.Name)
		}
	}
	switch len(hosts) {
	case 0:
	case 1:
		parts = append(parts, "host "+hosts[0])
	default:
		parts = append(parts, "hosts "+lab.Named(hosts, mostNamed))
	}
	if len(pools) > 0 {
		parts = append(parts, "machines of pool "+lab.Named(pools, mostNamed))
	}
	return strings.Join(parts, " and ")
}

// refusals are the errors for which hosts are refused, each once. Documents are read again for each boot: they can be broken after Compile,
// and fixed.
type refusals struct {
	checking sync.Mutex // hosts that share a broken document ask at once: the first checks the others

	mu  sync.Mutex
	all []Refused
}

// maxRefused bounds refusals, and the hosts of each. Of refusals, what was refused first is dropped.
const maxRefused = 1000

// Refused returns the errors that keep hosts from booting, each cause once, with the hosts: what Compile found, among those that it checked,
// and what hosts were refused for since. One is dropped once a host with that profile is served, and nothing is wrong any more.
func (t *Table) Refused() []Refused {
	t.refusals.mu.Lock()
	defer t.refusals.mu.Unlock()
	return slices.Clone(t.refusals.all)
}

// Problems are the errors of Refused, with the place in the lab file or in the document.
func (t *Table) Problems() lab.Problems { return problemsOf(t.Refused()) }

func problemsOf(all []Refused) (problems lab.Problems) {
	for _, r := range all {
		problems = append(problems, r.Problem)
	}
	return problems
}

// noteOutcome notes whether h was refused for an error of what it boots, or served.
func (s *Service) noteOutcome(t *Table, h *lab.Host, err error) {
	switch {
	case err == nil:
		t.dropFixed(h.Profile, s.deps.Now())
	case reasonOf(err) == event.NotRendered:
		faults, _ := t.faults(h)
		if len(faults) == 0 { // of a document of the lab before
			faults = []recipe.Fault{{Key: "config", Err: errors.Unwrap(err)}}
		}
		t.noteRefused(h, faults, s.deps.Now())
	}
}

// noteRefused notes that h was refused. If the error is new, a document was broken since Compile: the other hosts are checked again.
func (t *Table) noteRefused(h *lab.Host, faults []recipe.Fault, now time.Time) {
	found := t.causes([]*lab.Host{h}, [][]recipe.Fault{faults})
	t.refusals.checking.Lock()
	defer t.refusals.checking.Unlock()
	known := t.Refused()
	isNew := func(r Refused) bool { return !slices.ContainsFunc(known, r.same) }
	if h.Pool == nil && slices.ContainsFunc(found, isNew) {
		all, _ := t.check(t.checked)
		t.refusals.replace(t.checked, all, now)
	}
	t.refusals.replace([]*lab.Host{h}, found, now)
}

// same reports whether the causes are.
func (r Refused) same(o Refused) bool { return r.cause == o.cause }

// dropFixed drops the errors of hosts with a profile that they do not have any more.
func (t *Table) dropFixed(p *lab.Profile, now time.Time) {
	var fixed []*lab.Host
	for _, r := range t.Refused() {
		i := slices.IndexFunc(r.Hosts, func(h *lab.Host) bool { return h.Profile == p })
		if i < 0 {
			continue
		}
		if found, _ := t.check(r.Hosts[i : i+1]); !slices.ContainsFunc(found, r.same) {
			fixed = append(fixed, r.Hosts...)
		}
	}
	if len(fixed) == 0 {
		return
	}
	t.refusals.checking.Lock()
	defer t.refusals.checking.Unlock()
	found, _ := t.check(fixed)
	t.refusals.replace(fixed, found, now)
}

// replace replaces what is known of hosts by what was found of them now.
func (r *refusals) replace(hosts []*lab.Host, found []Refused, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	replaced := map[string]bool{}
	for _, h := range hosts {
		replaced[h.Name] = true
	}
	var all []Refused
	for _, before := range r.all {
		others := slices.DeleteFunc(slices.Clone(before.Hosts), func(h *lab.Host) bool { return replaced[h.Name] })
		if i := slices.IndexFunc(found, before.same); i >= 0 {
			others = append(others, found[i].Hosts...)
		}
		if len(others) > 0 {
			all = append(all, before.of(others))
		}
	}
	for _, f := range found {
		if !slices.ContainsFunc(r.all, f.same) {
			f.Since = now
			all = append(all, f)
		}
	}
	r.all = all[max(len(all)-maxRefused, 0):]
}
