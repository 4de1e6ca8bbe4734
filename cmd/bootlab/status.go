package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of each server and the result of the last reload; exit status 1 if a server does not serve",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			return cmp.Or(o.print(cmd, s, func() error { return statusText(cmd, s) }), notReady(s))
		},
	}
}

// notReady returns an error if a server does not serve all that the lab asks for. That is while /readyz answers 503, but for a daemon that stops
// in order: /readyz takes it out of use, and it is not unhealthy.
func notReady(s api.Status) error {
	switch {
	case s.Ready(), !s.Stopping.IsZero():
		return nil
	case len(s.Servers) == 0:
		return errors.New("the daemon is starting: no server answers yet")
	}
	return fmt.Errorf("not ready: %s", strings.Join(s.Unready(), ", "))
}

func statusText(cmd *cobra.Command, s api.Status) error {
	w := cmd.OutOrStdout()
	statusHead(w, s)
	for _, t := range []struct {
		header string
		rows   [][]string
	}{
		{"SERVER STATE LISTENS SINCE", serverRows(s)},
		{"CONDITION NAME STATE DETAIL SINCE", conditionRows(s)},
		{"BALANCER LISTENS BACKENDS", balancerRows(s.Balancers)},
		{"ADDRESS STATE INTERFACE OF SINCE", addressRows(s.Addresses)},
	} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := problemTable(w, strings.Fields(t.header), t.rows); err != nil {
			return err
		}
	}
	return nil
}

// problemTable writes a table whose rows may have one cell more than the header: a problem, which has a line of its own below
// its row, since it may be long; on a terminal it is wrapped.
func problemTable(w io.Writer, header []string, rows [][]string) error {
	problems := make([]string, len(rows))
	for i, row := range rows {
		if len(row) > len(header) {
			problems[i], rows[i] = row[len(header)], row[:len(header)]
		}
	}
	lines := layTable(header, rows, widthOf(w))
	for i, problem := range problems {
		if problem == "" {
			continue
		}
		for _, part := range wrap(lab.Printable(problem), widthOf(w)-2) {
			lines[i+1] = append(lines[i+1], "  "+part)
		}
	}
	return writeLines(w, lines)
}

// listened writes the addresses of a server: each of them has a row elsewhere, or a place in --json. The empty one is DHCP's without an
// interface.
func listened(addrs []string) string {
	const shown = 3
	if slices.Equal(addrs, []string{""}) {
		return "relayed requests only"
	}
	if len(addrs) <= shown {
		return strings.Join(addrs, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(addrs[:shown-1], " "), len(addrs)-shown+1)
}

// statusHead writes what is true of the daemon as a whole.
func statusHead(w io.Writer, s api.Status) {
	fmt.Fprintf(w, "lab %s, generation %d, daemon started %s, bootlab %s\n", s.Lab, s.Generation, localTime(s.Started), s.Version)
	if s.StateLost != "" {
		fmt.Fprintln(w, strings.Join(wrap("failed: "+lab.Printable(s.StateLost), widthOf(w)), "\n"))
	}
	if !s.Stopping.IsZero() {
		fmt.Fprintf(w, "stopping since %s: connections of balancers and transfers end first\n", localTime(s.Stopping))
	}
	fmt.Fprintf(w, "confined: files %s, system calls %s\n", s.Files, s.Calls)
	if r := s.Reload; r.Err != "" {
		fmt.Fprintf(w, "\n%s:\n%s\n", r.Refused(), indent(r.Err))
	} else if !r.At.IsZero() {
		fmt.Fprintf(w, "last reload %s: %s\n", localTime(r.At), r.Detail)
	}
	if t := s.Store; t.Folder != "" {
		last := "nothing stored since the start"
		if !t.Synced.IsZero() {
			last = fmt.Sprintf("last write %s in %v", localTime(t.Synced), t.Took.Round(10*time.Microsecond))
		}
		if !t.FreeUnknown {
			last += fmt.Sprintf(", %d MiB free", t.FreeBytes>>20)
		}
		fmt.Fprintf(w, "state %s: %s\n", t.Folder, last)
	}
	for _, problem := range s.Store.Problems {
		fmt.Fprintln(w, "store degraded:", problem)
	}
	for _, fault := range s.Faults {
		fmt.Fprintln(w, "error:", fault)
	}
	for _, warning := range s.Warnings {
		if warning.Message != s.StateLost { // which stands first
			fmt.Fprintln(w, "warning:", warning)
		}
	}
}

func serverRows(s api.Status) (rows [][]string) {
	for _, srv := range s.Servers {
		rows = append(rows, []string{srv.Name, string(s.StateOf(srv)), listened(srv.Addrs), localTime(srv.Since), strings.Join(s.Problems(srv), "; ")})
	}
	return rows
}

func conditionRows(s api.Status) (rows [][]string) {
	for i, c := range s.Conditions {
		switch {
		case slices.ContainsFunc(s.Faults, c.Has): // it is above
			c.Problem = ""
			c.Detail = cmp.Or(c.Detail, "see the error above")
		case i+1 < len(s.Conditions) && c.SameProblem(s.Conditions[i+1]): // it is below the last one
			c.Problem = ""
		}
		rows = append(rows, []string{c.Kind, c.Name, c.State(), c.Detail, localTime(c.Since), c.Problem})
	}
	return rows
}

func balancerRows(balancers []api.BalancerHealth) (rows [][]string) {
	for _, b := range balancers {
		rows = append(rows, []string{b.Name, cmp.Or(b.Listen, "-"), b.String()})
	}
	return rows
}

func addressRows(addresses []api.Address) (rows [][]string) {
	for _, a := range addresses {
		rows = append(rows, []string{a.Addr.String(), a.Short(), a.Interface, a.For, localTime(a.Since), a.Problem})
	}
	return rows
}

// localTime writes a time in the time zone of the terminal; "" for the zero value.
func localTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }
