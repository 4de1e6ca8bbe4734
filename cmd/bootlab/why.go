package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

func whyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "why HOST...",
		Short: "Say where the last boot of a host stopped, the likely cause and the evidence; exit status 1 if it stopped",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var stopped, failing []string
			err = oneByOne(cmd, o, args, func(host string) (api.Diagnosis, error) {
				d, err := c.Why(cmd.Context(), host)
				switch {
				case err != nil || !d.Stopped():
				case d.Failing():
					failing = append(failing, d.Host)
				default:
					stopped = append(stopped, d.Host)
				}
				return d, err
			}, whyText)
			if len(stopped) > 0 {
				err = errors.Join(err, fmt.Errorf("not booted: %s", strings.Join(stopped, ", ")))
			}
			if len(failing) > 0 {
				err = errors.Join(err, fmt.Errorf("failing: %s", strings.Join(failing, ", ")))
			}
			return err
		},
	}
}

// whyText writes diagnoses. What was measured for several hosts, such as the error of their hypervisor, is written with the first.
func whyText(cmd *cobra.Command, ds []api.Diagnosis) error {
	first := map[string]string{} // host, by fact
	for i, d := range ds {
		facts := slices.Clone(d.Facts)
		for j, fact := range facts {
			if host, said := first[fact]; said {
				facts[j] = "the same as of " + host
				continue
			}
			first[fact] = d.Host
		}
		d.Facts = slices.Compact(facts)
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if err := writeDiagnosis(cmd.OutOrStdout(), d); err != nil {
			return err
		}
	}
	return nil
}

func writeDiagnosis(w io.Writer, d api.Diagnosis) error {
	head := d.Host + ": " + d.StateText()
	switch {
	case d.Unknown() && len(d.Evidence) == 0 && d.Stage == event.StageMachine: // its hypervisor does not answer
		head = d.Host + ": " + d.State
	case d.Install == "unknown":
		head = d.Host + ": install state unknown"
	case d.Unknown() && len(d.Evidence) == 0:
		head = d.Host + ": no request received yet"
	}
	if !d.Since.IsZero() {
		head += fmt.Sprintf(" since %s (%s)", localTime(d.Since), forHow(d.Since))
	}
	fmt.Fprintf(w, "%s\n  %s\n", head, lab.Printable(d.Cause))
	if len(d.Evidence) > 0 {
		fmt.Fprintln(w, "evidence")
	}
	for _, e := range d.Evidence {
		if err := timeline.FormatEvent(w, e, formatOptions()); err != nil {
			return err
		}
	}
	section(w, "measured now", d.Facts)
	section(w, "what to do", d.Do)
	return nil
}

// section writes lines below a title, if there are any.
func section(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	for _, line := range lines {
		fmt.Fprintln(w, "  "+lab.Printable(line))
	}
}
