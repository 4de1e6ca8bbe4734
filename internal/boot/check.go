package boot

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// check renders everything for these hosts, on all processors. It returns the faults of the lab file, which keep every host
// from booting, and those that only some hosts have; each cause once, with the first host that has it.
func (t *Table) check(hosts []*lab.Host) (all, some lab.Problems) {
	faults := make([][]recipe.Fault, len(hosts))
	var wait sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(hosts))
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(hosts); i += workers {
				faults[i] = t.faults(hosts[i])
			}
		})
	}
	wait.Wait()
	seen := map[same]bool{}
	for i, h := range hosts {
		for _, f := range faults[i] {
			p := t.problem(h, f)
			if seen[cause(p)] {
				continue
			}
			seen[cause(p)] = true
			if f.Everyone() {
				all = append(all, p)
			} else {
				some = append(some, p)
			}
		}
	}
	return all, some
}

// placeholder stands for the token where nothing boots.
const placeholder = "TOKEN"

// faults renders everything for one host.
func (t *Table) faults(h *lab.Host) []recipe.Fault {
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err != nil {
		return []recipe.Fault{{Key: "config", Err: err}}
	}
	return r.Faults(d)
}

// problem says where a fault is: in a document, or at the key of the profile.
func (t *Table) problem(h *lab.Host, f recipe.Fault) *lab.Problem {
	p := &lab.Problem{Pos: h.Profile.PosOf(f.Key), Key: "profiles." + h.Profile.Name + "." + f.Key, Message: recipe.For(h.Name, f.Err)}
	var doc *recipe.DocumentError
	if errors.As(f.Err, &doc) {
		p.Pos = lab.Pos{File: filepath.Join(t.lab.Appliance.Files, filepath.FromSlash(doc.File)), Line: max(doc.Line, 1), Column: max(doc.Column, 1)}
		p.Message = recipe.For(h.Name, doc.Err)
	}
	return p
}

// same is what two problems have in common that differ in the host alone.
type same struct {
	at           lab.Pos
	key, message string
}

func cause(p *lab.Problem) same {
	_, message, _ := strings.Cut(p.Message, ": ") // behind "for host x"
	return same{p.Pos, p.Key, message}
}
