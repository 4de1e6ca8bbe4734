package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

func checkCommand(o *options) *cobra.Command {
	var strict, live bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the lab file and report every error; exit status 1 if there is one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return check(cmd, o, strict, live) },

		Annotations: map[string]string{onInterrupt: interruptEnds},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "treat missing files and unreadable zones as errors")
	cmd.Flags().BoolVar(&live, "live", false, "ask the hypervisors, too, for bridges, networks, pools, memory, firmware and CPUs, and this machine for the interfaces")
	return cmd
}

// A checkResult is the result of check as JSON.
type checkResult struct {
	OK       bool           `json:"ok"`
	Errors   []*lab.Problem `json:"errors"`
	Warnings []*lab.Problem `json:"warnings"`
}

func check(cmd *cobra.Command, o *options, strict, live bool) error {
	l, found, err := daemon.Check(o.lab, daemon.Strictness(strict))
	if err == nil && (live || interfaces.AnyExists(l)) {
		found.Warnings = append(found.Warnings, interfaces.Warnings(l)...)
	}
	lacking := 0
	if live && err == nil {
		missing, unknown, compile := daemon.CheckHypervisors(cmd.Context(), "/proc/self/exe", l)
		err, lacking = compile, len(missing)
		found.Faults, found.Warnings = append(found.Faults, missing...), append(found.Warnings, unknown...)
	}
	v := checkResult{OK: err == nil && len(found.Faults) == 0, Errors: problemsOf(errors.Join(err, found.Faults.Err())), Warnings: found.Warnings}
	v.Errors, v.Warnings = append(lab.Problems{}, v.Errors...), append(lab.Problems{}, v.Warnings...) // [], not null
	load.Quote(v.Errors)
	load.Quote(v.Warnings)
	if printed := o.print(cmd, v, func() error { return checkText(cmd, l, v) }); printed != nil {
		return printed
	}
	switch {
	case v.OK:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the lab file %s cannot be read; set the lab file with --lab", o.lab)
	case err == nil && lacking == len(v.Errors):
		return fmt.Errorf("the hypervisors lack what virtual machines of the lab file need: %s", countErrors(lacking))
	case err == nil:
		return fmt.Errorf("the lab file has %s; a daemon applies it, and serves everything else until %s fixed", countErrors(len(v.Errors)), areThey(len(v.Errors)))
	}
	return fmt.Errorf("the lab file has %s", countErrors(len(v.Errors)))
}

// areThey returns what is said of n things that were named before.
func areThey(n int) string {
	if n == 1 {
		return "it is"
	}
	return "they are"
}

func countErrors(n int) string { return lab.Plural(n, "error") }

// problemsOf returns err as problems. One that is about no line of the lab file has no place.
func problemsOf(err error) lab.Problems {
	switch err := err.(type) {
	case nil:
		return nil
	case lab.Problems:
		return err
	case interface{ Unwrap() []error }:
		var all lab.Problems
		for _, e := range err.Unwrap() {
			all = append(all, problemsOf(e)...)
		}
		return all
	}
	return lab.Problems{{Message: err.Error()}}
}

// refusals returns what a daemon would refuse of a lab that was loaded, or could not be: all of it, and single machines and zones of it.
func refusals(l *lab.Lab, err error) (whole, parts lab.Problems) {
	if err != nil {
		return problemsOf(err), nil
	}
	s, err := daemon.CompileUpdated(l, nil)
	if err != nil {
		return problemsOf(err), nil
	}
	return nil, s.Faults()
}

// whichLab adds to the error of a lab file that does not exist how to name another.
func (o *options) whichLab(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(err, fs.ErrNotExist) && path.Path == o.lab {
		return fmt.Errorf("%w; set the lab file with --lab", err)
	}
	return err
}

// maxPrinted is how many errors are printed, and how many warnings: what one mistake in a file for many hosts causes is found in the first.
const maxPrinted = 100

// firstOf returns the first problems with their lines, and how many more there are. kind is error or warning.
func firstOf(problems lab.Problems, kind string) string {
	var b strings.Builder
	lead := ""
	if kind != "error" {
		lead = kind + ": "
	}
	for _, p := range problems[:min(len(problems), maxPrinted)] {
		b.WriteString(lead + p.Detail())
	}
	if more := len(problems) - maxPrinted; more > 0 {
		fmt.Fprintf(&b, "… and %s; bootlab check --json lists all\n", lab.Plural(more, "more "+kind))
	}
	return b.String()
}

func checkText(cmd *cobra.Command, l *lab.Lab, v checkResult) error {
	fmt.Fprint(cmd.ErrOrStderr(), firstOf(v.Errors, "error"))
	fmt.Fprint(cmd.ErrOrStderr(), firstOf(v.Warnings, "warning"))
	if !v.OK {
		return nil
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "lab %s is valid: %s\n", l.Name, l.Summary())
	return err
}

func planCommand(o *options) *cobra.Command {
	var diff, show, zones bool
	cmd := &cobra.Command{
		Use:   "plan [HOST|ZONE]",
		Short: "Show everything derived from the lab file: reservations, zones, scripts, balancers, libvirt XML",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			host := strings.Join(args, "")
			if zones {
				return planZones(cmd, o, host)
			}
			secrets := api.Hidden
			if show {
				secrets = api.Shown
			}
			if diff {
				return planDiff(cmd, o, host, secrets)
			}
			p, err := o.plan(cmd, host)
			if err != nil {
				return err
			}
			if secrets != api.Shown {
				p.Hide()
			}
			return o.print(cmd, p, func() error { return p.WriteText(cmd.OutOrStdout()) })
		},
		Annotations: map[string]string{onInterrupt: interruptEnds},
	}
	cmd.Flags().BoolVar(&show, "secrets", false, "include config documents, with the keys and passwords in them")
	cmd.Flags().BoolVar(&diff, "diff", false, "show what a reload would change; exit status 0: nothing, 1: something, 2: trouble")
	cmd.Flags().BoolVar(&zones, "zones", false, "show DNS zones as zone files: all, or with plan --zones ZONE one")
	cmd.MarkFlagsMutuallyExclusive("zones", "diff")
	cmd.MarkFlagsMutuallyExclusive("zones", "secrets")
	return cmd
}

// planZones prints the zone files of all zones, or of one.
func planZones(cmd *cobra.Command, o *options, zone string) error {
	s, err := o.compile(cmd)
	if err != nil {
		return err
	}
	files, err := plan.Zones(s, zone)
	if err != nil {
		return err
	}
	return o.print(cmd, files, func() error { return plan.WriteZones(cmd.OutOrStdout(), files) })
}

// load reads the lab file.
func (o *options) load() (*lab.Lab, error) {
	l, err := load.Lab(o.lab, load.Options{InterfaceAddr: interfaces.AddrIn})
	if err != nil {
		return nil, o.whichLab(err)
	}
	return l, nil
}

func (o *options) plan(cmd *cobra.Command, host string) (*plan.Plan, error) {
	s, err := o.compile(cmd)
	if err != nil {
		return nil, err
	}
	return plan.Of(s, host)
}

// compile returns everything that follows from the lab file, and what dynamic updates have put into its zones if the daemon runs.
func (o *options) compile(cmd *cobra.Command) (*snapshot.Snapshot, error) {
	l, err := o.load()
	if err != nil {
		return nil, err
	}
	return daemon.CompileUpdated(l, o.updates(cmd, l))
}

// updates asks the daemon what dynamic updates have made, if the lab allows any. A plan without them is a plan, too.
func (o *options) updates(cmd *cobra.Command, l *lab.Lab) []api.DNSUpdate {
	if !slices.ContainsFunc(l.Zones, func(z *lab.Zone) bool { return len(z.Update) > 0 }) {
		return nil
	}
	c, err := o.client()
	var all []api.DNSUpdate
	if err == nil {
		all, err = c.DNSUpdates(cmd.Context())
	}
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: records of dynamic updates are not shown:", err)
	}
	return all
}

// planDiff compares the plan of the running daemon with that of the lab file, and the keys that no plan shows. The error is a differError if they
// differ.
func planDiff(cmd *cobra.Command, o *options, host string, secrets api.Secrets) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	running, err := c.Plan(cmd.Context(), host, api.Shown)
	if err != nil {
		return err
	}
	keys, err := c.LabKeys(cmd.Context(), host)
	if err != nil {
		return err
	}
	s, err := o.compile(cmd)
	if err != nil {
		return err
	}
	p, err := plan.Of(s, host)
	if err != nil {
		return err
	}
	var next strings.Builder
	if err := p.WriteText(&next); err != nil {
		return err
	}
	changes := append(plan.Diff(running, next.String()), plan.DiffKeys(keys, plan.KeysOf(s.Lab, host))...)
	if secrets != api.Shown {
		changes = plan.HideChanges(changes)
	}
	if err := o.print(cmd, changes, func() error { return plan.WriteDiff(cmd.OutOrStdout(), changes) }); err != nil {
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	if why := refusedBy(cmd, c, o.lab); why != "" {
		return differError("the lab file differs from the running lab, and bootlab reload refuses it: " + why)
	}
	return differError("the lab file differs from the running lab; bootlab reload applies it, or says why not")
}

// refusedBy says why a daemon that serves this lab file would not reload it now; empty: nothing is known against it.
func refusedBy(cmd *cobra.Command, c *api.Client, file string) string {
	s, err := c.Status(cmd.Context())
	if whole, abs := filepath.Abs(file); err != nil || abs != nil || s.LabFile != whole {
		return ""
	}
	var refused *api.Error
	if errors.As(c.CheckReload(cmd.Context()), &refused) && refused.Status == http.StatusUnprocessableEntity {
		return refused.Reason
	}
	return ""
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the lab file, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(load.Schema())
			return err
		},
	}
}
