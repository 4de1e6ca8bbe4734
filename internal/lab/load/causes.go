package load

import (
	"errors"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A retry gives a value that is not valid other texts, to find out which problems follow from it.
type retry struct {
	samples []string
	try     func(sample string) (undo func(), ok bool)
}

// Limits of causes: how often a lab is resolved again, and the size of one for which that takes a few milliseconds.
const (
	maxRetries      = 200
	maxRetriedHosts = 1000
)

// samplesOf returns texts of which a value of that type may be one.
func samplesOf(v textual) []string {
	if words, ok := v.spec()["enum"].([]any); ok {
		var samples []string
		for _, w := range words {
			if s, ok := w.(string); ok {
				samples = append(samples, s)
			}
		}
		return samples
	}
	return []string{"true", "false", "1", "443", "200", "1m", "1GiB", "example.com", "10.255.255.1", "10.255.0.0/16", "02:00:00:00:00:fe", "https://example.com/x"}
}

// A place is where a problem is: one that has another message because another value is different is the same.
type place struct {
	pos lab.Pos
	key string
}

// causes removes problems and warnings that follow from another problem: those that would be gone if a value that is not valid were valid, and those
// of what an alias repeats.
func (d *decoder) causes(err error, r *resolver, decoded lab.Problems) error {
	var problems lab.Problems
	if !errors.As(err, &problems) || len(problems)+len(r.lab.Warnings) < 2 {
		return err
	}
	own := map[*lab.Problem]bool{} // of values themselves
	for _, p := range decoded {
		own[p] = true
	}
	gone := d.gone(r, decoded, slices.Concat(problems, r.lab.Warnings))
	r.lab.Warnings = slices.DeleteFunc(r.lab.Warnings, func(p *lab.Problem) bool { return gone[place{p.Pos, p.Key}] })
	problems = slices.DeleteFunc(problems, func(p *lab.Problem) bool { return !own[p] && gone[place{p.Pos, p.Key}] })
	return d.notRepeated(problems).Err()
}

// gone returns the places of those problems that are not there if one of the values that are not valid has another text.
func (d *decoder) gone(r *resolver, decoded, problems lab.Problems) map[place]bool {
	gone, left := map[place]bool{}, maxRetries
	if len(r.raw.Hosts.Entries) > maxRetriedHosts {
		return gone
	}
	var routers []string
	for _, n := range r.lab.Networks {
		routers = append(routers, n.Router.String())
	}
	for _, v := range d.retries {
		for _, sample := range slices.Concat(v.samples, routers) {
			undo, ok := v.try(sample)
			if !ok {
				continue
			}
			if left--; left < 0 {
				undo()
				return gone
			}
			still := d.placesWithout(r, decoded)
			undo()
			for _, p := range problems {
				at := place{p.Pos, p.Key}
				gone[at] = gone[at] || !still[at]
			}
		}
	}
	return gone
}

// placesWithout resolves the lab again and returns where it has problems and warnings.
func (d *decoder) placesWithout(r *resolver, decoded lab.Problems) map[place]bool {
	again := *d
	again.problems = slices.Clone(decoded)
	r2 := newResolver(&again, r.raw, r.o)
	_ = r2.run() // what is wrong is in again.problems
	places := map[place]bool{}
	for _, p := range slices.Concat(again.problems, r2.lab.Warnings) {
		if slices.Contains(decoded, p) {
			continue
		}
		places[place{p.Pos, p.Key}] = true
	}
	return places
}

// notRepeated removes problems at an alias that what it repeats has, too.
func (d *decoder) notRepeated(problems lab.Problems) lab.Problems {
	aliases := map[lab.Pos]bool{}
	for s := range d.aliases {
		aliases[d.pos(s)] = true
	}
	type same struct{ message, key string }
	first := map[same]bool{}
	last := func(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
	for _, p := range problems {
		if !aliases[p.Pos] {
			first[same{p.Message, last(p.Key)}] = true
		}
	}
	return slices.DeleteFunc(problems, func(p *lab.Problem) bool { return aliases[p.Pos] && first[same{p.Message, last(p.Key)}] })
}
