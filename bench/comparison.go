package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// A candidate is what all servers under comparison have in common.
type candidate struct {
	name     string
	program  string   // that must be installed; empty: none but bootlab and this one
	optional bool     // only if -candidates names it
	only     []string // the tests that it takes part in; none: all
}

func (e *candidate) base() *candidate { return e }

// A candidateOf is a kind of server under comparison: it embeds a candidate.
type candidateOf interface{ base() *candidate }

func (e *candidate) installed(binary string) error {
	if e.program == "" {
		_, err := os.Stat(binary)
		return err
	}
	_, err := exec.LookPath(e.program)
	return err
}

func (e *candidate) wanted(only []string) bool {
	if len(only) == 0 {
		return !e.optional
	}
	return slices.Contains(only, e.name)
}

// selectCandidates returns the wanted candidates that are installed, and prints why others are not.
func selectCandidates[C candidateOf](b *bench, all []C) (wanted []C, err error) {
	for _, name := range b.only {
		if !slices.ContainsFunc(all, func(c C) bool { return c.base().name == name }) {
			return nil, fmt.Errorf("there is no candidate %q", name)
		}
	}
	for _, c := range all {
		e := c.base()
		if !e.wanted(b.only) {
			continue
		}
		if err := e.installed(b.binary); err != nil {
			fmt.Fprintf(os.Stderr, "%s is skipped: %v\n", e.name, err)
			continue
		}
		wanted = append(wanted, c)
	}
	if len(wanted) == 0 {
		err = errors.New("no candidate is left")
	}
	return wanted, err
}

// A comparison is one test of all candidates. take measures one, and returns the part of a CPU that other processes used meanwhile.
type comparison[C candidateOf] struct {
	name string
	rows []row
	take func(context.Context, C) (values, float64, error)
}

// compare runs the wanted comparisons, candidates in turn within each round, and prints the table.
func compare[C candidateOf](ctx context.Context, b *bench, candidates []C, comparisons []comparison[C]) error {
	var names []string
	for _, c := range candidates {
		names = append(names, c.base().name)
	}
	out := newReport(names)
	var rows []row
	for _, t := range comparisons {
		if !b.wants(t.name) {
			continue
		}
		rows = append(rows, t.rows...)
		if err := t.run(ctx, b, out, candidates); err != nil {
			return err
		}
	}
	return out.print(b, rows)
}

func (t comparison[C]) run(ctx context.Context, b *bench, out *report, candidates []C) error {
	for round := range b.rounds {
		for _, c := range candidates {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e := c.base()
			if len(e.only) > 0 && !slices.Contains(e.only, t.name) {
				continue
			}
			b.measure(out, turn{t.name, e.name, round}, t.rows, func() (values, float64, error) { return t.take(ctx, c) })
		}
	}
	return nil
}

// A stopper is a running candidate.
type stopper interface{ stop() error }

// A restartedTest is one measurement of one candidate that was started for it. It returns its values by row.
type restartedTest[S stopper] struct {
	name string
	rows []row
	run  func(ctx context.Context, s S) (values, error)
}

func testNames[S stopper](tests []restartedTest[S]) (all []string) {
	for _, t := range tests {
		all = append(all, t.name)
	}
	return all
}

// restarted returns the comparisons of tests before each of which the candidate is started, and after which it is stopped; limit bounds
// each for one candidate in one round. n is the CPU time of other processes meanwhile.
func restarted[C candidateOf, S stopper](tests []restartedTest[S], limit time.Duration, n *noise, start func(context.Context, C) (S, error)) (comparisons []comparison[C]) {
	for _, t := range tests {
		comparisons = append(comparisons, comparison[C]{t.name, t.rows, func(ctx context.Context, c C) (values, float64, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			s, err := start(ctx, c)
			if err != nil {
				return nil, 0, err
			}
			*n = noise{}
			got, err := t.run(ctx, s)
			return got, n.share(), errors.Join(err, s.stop())
		}})
	}
	return comparisons
}
