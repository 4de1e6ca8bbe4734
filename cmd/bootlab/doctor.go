package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
)

func doctorCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check ports, interfaces, other DHCP servers, MTU, files, disk and upstreams; exit status 1 if something fails",
		Long: `Check what would keep the lab from working: before the first start, or beside the daemon, which it asks then. It changes nothing.
Some checks need root, and say so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd, o) },
	}
}

// A doctorResult is the result of doctor as JSON.
type doctorResult struct {
	Level    doctor.Level     `json:"level"`   // the worst of all
	Serving  bool             `json:"serving"` // the daemon runs
	Findings []doctor.Finding `json:"findings"`
}

func examine(cmd *cobra.Command, o *options) error {
	r := doctorResult{}
	l, found, err := daemon.Check(o.lab, false)
	for _, p := range slices.Concat(problemsOf(err), found.Faults) {
		text := p.Message
		if p.Key != "" {
			text = p.Key + ": " + text
		}
		r.Findings = append(r.Findings, doctor.Finding{Check: "lab", Subject: p.Pos.String(), Level: doctor.Fail, Text: text})
	}
	if l != nil && err == nil {
		if len(found.Faults) == 0 {
			r.Findings = append(r.Findings, doctor.Finding{Check: "lab", Subject: o.lab, Level: doctor.OK, Text: "is valid: " + l.Summary()})
		}
		status, serving := runningDaemon(cmd.Context(), o)
		r.Serving = serving
		r.Findings = append(r.Findings, daemonFindings(status)...)
		m := daemon.Examined(l, found.Warnings, serving)
		m.OtherServers = otherServers(status)
		m.Elsewhere = status.Namespace != "" && status.Namespace != daemon.Namespace()
		r.Findings = append(r.Findings, doctor.Run(cmd.Context(), m)...)
	}
	r.Level = doctor.Worst(r.Findings)
	if err := o.print(cmd, r, func() error { return doctorText(cmd.OutOrStdout(), r) }); err != nil {
		return err
	}
	if r.Level != doctor.Fail {
		return nil
	}
	n := len(slices.DeleteFunc(r.Findings, func(f doctor.Finding) bool { return f.Level != doctor.Fail }))
	return fmt.Errorf("%s found", countErrors(n))
}

// runningDaemon returns the status of the daemon, if it runs.
func runningDaemon(ctx context.Context, o *options) (api.Status, bool) {
	c, err := o.client()
	if err != nil {
		return api.Status{}, false
	}
	s, err := c.Status(ctx)
	return s, err == nil
}

// daemonFindings are what the daemon has measured and is not good.
func daemonFindings(s api.Status) (all []doctor.Finding) {
	for _, name := range s.Unready() {
		all = append(all, doctor.Finding{Check: "daemon", Subject: name, Level: doctor.Fail, Text: "does not serve", Fix: "bootlab status says why"})
	}
	for _, a := range s.Unheld() {
		all = append(all, doctor.Finding{Check: "daemon", Subject: a.Addr.String(), Level: doctor.Fail, Text: "clients do not reach this machine at the address", Fix: "bootlab status says why"})
	}
	for _, c := range s.Conditions {
		if !c.OK && c.Kind != api.ConditionDHCPServer { // a check of its own
			all = append(all, doctor.Finding{Check: "daemon", Subject: c.Kind + " " + c.Name, Level: doctor.Fail, Text: c.Problem})
		}
	}
	for _, w := range s.Warnings {
		all = append(all, doctor.Finding{Check: "daemon", Subject: "warning", Level: doctor.Warn, Text: w})
	}
	return all
}

// otherServers returns the other DHCP servers that the daemon has seen, by interface.
func otherServers(s api.Status) map[string]string {
	seen := map[string]string{}
	all, _ := s.ConditionsOf(api.ConditionDHCPServer)
	for _, c := range all {
		seen[c.Name] = c.Detail + ", seen by the daemon since " + localTime(c.Since) + ","
	}
	return seen
}

func doctorText(out io.Writer, r doctorResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Level, f.Check, f.Subject, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(w, "\t\t\t-> %s\n", f.Fix)
		}
	}
	return w.Flush()
}
