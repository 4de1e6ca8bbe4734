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

// An entry is what every contender has. program is what must be installed for it; "": bootlab, or this program.
type entry struct {
	name    string
	program string
	unasked bool     // it takes part only where it is named
	only    []string // the tests that it takes part in; none: all
}

func (e *entry) entered() *entry { return e }

// An entrant is a contender of some measurement: it embeds an entry.
type entrant interface{ entered() *entry }

func (e *entry) installed(binary string) error {
	if e.program == "" {
		_, err := os.Stat(binary)
		return err
	}
	_, err := exec.LookPath(e.program)
	return err
}

func (e *entry) wanted(only []string) bool {
	if len(only) == 0 {
		return !e.unasked
	}
	return slices.Contains(only, e.name)
}

// entrants returns those that are asked for and installed, and says why another is not there.
func entrants[C entrant](b *bench, all []C) (wanted []C, err error) {
	for _, name := range b.only {
		if !slices.ContainsFunc(all, func(c C) bool { return c.entered().name == name }) {
			return nil, fmt.Errorf("there is no contender %q", name)
		}
	}
	for _, c := range all {
		e := c.entered()
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
		err = errors.New("no contender is left")
	}
	return wanted, err
}

// A trial is one test of all contenders. take returns what it measured of one, and the part of a CPU that others used.
type trial[C entrant] struct {
	name string
	rows []row
	take func(context.Context, C) (values, float64, error)
}

// contest holds the trials that are asked for, contenders in turn within each round, and prints the table.
func contest[C entrant](ctx context.Context, b *bench, contenders []C, trials []trial[C]) error {
	var lineup []string
	for _, c := range contenders {
		lineup = append(lineup, c.entered().name)
	}
	out := newReport(lineup)
	var rows []row
	for _, t := range trials {
		if !b.wants(t.name) {
			continue
		}
		rows = append(rows, t.rows...)
		if err := t.hold(ctx, b, out, contenders); err != nil {
			return err
		}
	}
	return out.print(b, rows)
}

func (t trial[C]) hold(ctx context.Context, b *bench, out *report, contenders []C) error {
	for round := range b.rounds {
		for _, c := range contenders {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e := c.entered()
			if len(e.only) > 0 && !slices.Contains(e.only, t.name) {
				continue
			}
			b.measure(out, turn{t.name, e.name, round}, t.rows, func() (values, float64, error) { return t.take(ctx, c) })
		}
	}
	return nil
}

// A stopper is a contender that was started.
type stopper interface{ stop() error }

// A freshTest is one measurement of one contender that was just started. It returns its values by row.
type freshTest[S stopper] struct {
	name string
	rows []row
	run  func(ctx context.Context, s S) (values, error)
}

func testNames[S stopper](tests []freshTest[S]) (all []string) {
	for _, t := range tests {
		all = append(all, t.name)
	}
	return all
}

// afresh returns the trials of tests before each of which the contender is started, and after which it is stopped; limit bounds
// each for one contender in one round. n is what the rig notes of others meanwhile.
func afresh[C entrant, S stopper](tests []freshTest[S], limit time.Duration, n *noise, start func(context.Context, C) (S, error)) (trials []trial[C]) {
	for _, t := range tests {
		trials = append(trials, trial[C]{t.name, t.rows, func(ctx context.Context, c C) (values, float64, error) {
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
	return trials
}
