package boot

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Refused is an error that keeps hosts from booting: Compile found it, or a host was refused for it since.
type Refused struct {
	*lab.Problem
	Host  *lab.Host // the last that was refused for it, or the first that Compile found it for
	Since time.Time // zero: since Compile
}

// refusals are the errors for which hosts are refused, each once. Documents are read again for each boot: they can be broken after Compile,
// and fixed.
type refusals struct {
	mu  sync.Mutex
	all []Refused
}

// maxRefused bounds refusals. Beyond, what was refused first is dropped.
const maxRefused = 256

// Refused returns the errors that keep hosts from booting, each cause once: what Compile found, among the hosts that it checked, and what hosts
// were refused for since. One is dropped once a host with that profile is served, and nothing is wrong any more.
func (t *Table) Refused() []Refused {
	t.refusals.mu.Lock()
	defer t.refusals.mu.Unlock()
	return slices.Clone(t.refusals.all)
}

// Problems are the errors of Refused, with the place in the lab file or in the document.
func (t *Table) Problems() (problems lab.Problems) {
	for _, r := range t.Refused() {
		problems = append(problems, r.Problem)
	}
	return problems
}

// noteOutcome notes whether h was refused for an error of what it boots, or served.
func (s *Service) noteOutcome(t *Table, h *lab.Host, err error) {
	switch {
	case err == nil:
		t.refusals.dropFixed(t, h.Profile)
	case reasonOf(err) == event.NotRendered:
		faults, _ := t.faults(h)
		faults = append(faults, recipe.Fault{Key: "config", Err: errors.Unwrap(err)}) // of a document of the lab before
		t.refusals.add(Refused{t.problem(h, faults[0]), h, s.deps.Now()})
	}
}

// add adds an error, in place of those of the same host or place.
func (r *refusals) add(refused Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(old Refused) bool {
		same := old.Host.Name == refused.Host.Name || old.Pos == refused.Pos && old.Key == refused.Key
		if same && old.Message == refused.Message {
			refused.Since = old.Since
		}
		return same
	})
	if len(r.all) == maxRefused {
		r.all = r.all[1:]
	}
	r.all = append(r.all, refused)
}

// dropFixed drops the errors of hosts with a profile for which nothing is wrong any more.
func (r *refusals) dropFixed(t *Table, p *lab.Profile) {
	var fixed []*lab.Problem
	for _, refused := range t.Refused() {
		if refused.Host.Profile != p {
			continue
		}
		if faults, _ := t.faults(refused.Host); len(faults) == 0 {
			fixed = append(fixed, refused.Problem)
		}
	}
	if len(fixed) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(refused Refused) bool { return slices.Contains(fixed, refused.Problem) })
}
