package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/lab"
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
	Serving  bool             `json:"serving"` // the daemon of this lab runs
	Findings []doctor.Finding `json:"findings"`
}

func examine(cmd *cobra.Command, o *options) error {
	r := doctorResult{}
	l, found, err := daemon.Check(o.lab, daemon.Lenient)
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
		status, err := askedDaemon(cmd.Context(), o)
		if err == nil && !serves(status, o.lab, l) {
			r.Findings = append(r.Findings, doctor.Finding{Check: "daemon", Subject: "daemon", Level: doctor.Warn,
				Text: fmt.Sprintf("serves another lab, %s: what it has measured is left out", cmp.Or(status.LabFile, status.Lab)), Fix: "bootlab status shows it"})
			status, err = api.Status{}, api.ErrNoDaemon
		}
		r.Serving = err == nil
		m := daemon.Examined(l, o.lab, found.Warnings)
		m.Serving, m.OtherServers = r.Serving, otherServers(status)
		if err != nil && !errors.Is(err, api.ErrNoDaemon) {
			m.Unseen = err
		}
		m.Elsewhere = status.Namespace != "" && status.Namespace != daemon.Namespace()
		own := doctor.Run(cmd.Context(), m)
		r.Findings = append(r.Findings, joined(daemonFindings(status, l), own)...)
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

// askedDaemon returns the status of the daemon. The error is api.ErrNoDaemon if none runs.
func askedDaemon(ctx context.Context, o *options) (api.Status, error) {
	c, err := o.client()
	if err != nil {
		return api.Status{}, err
	}
	return c.Status(ctx)
}

// serves reports whether a daemon with this status serves the lab of a file, as far as that can be seen: it may name its files in another
// way, as in a container.
func serves(s api.Status, file string, l *lab.Lab) bool {
	own, err := os.Stat(file)
	other, otherErr := os.Stat(s.LabFile)
	if err != nil || otherErr != nil {
		return s.Lab == l.Name
	}
	return os.SameFile(own, other)
}

// daemonFindings are what the daemon has measured, in the words of bootlab status: a line for each of its conditions, and what else is not
// good. What a check looks at, too, has its name.
func daemonFindings(s api.Status, l *lab.Lab) (all []doctor.Finding) {
	add := func(level doctor.Level, check, subject, text string) {
		all = append(all, doctor.Finding{Check: check, Subject: subject, Level: level, Text: text})
	}
	for _, srv := range s.Servers {
		if !srv.Serving {
			add(doctor.Fail, "daemon", srv.Name, string(s.StateOf(srv))+": "+srv.Err)
		}
	}
	for _, a := range s.Unheld() {
		if a.State == api.AddressLooking {
			add(doctor.Warn, "daemon", a.Addr.String(), "is being probed: "+a.Problem)
			continue
		}
		add(doctor.Fail, "daemon", a.Addr.String(), a.Problem)
	}
	checks := map[string]string{api.ConditionInterface: "interfaces", api.ConditionHypervisor: "hypervisors", api.ConditionDisk: "state", api.ConditionForwarder: "dns", api.ConditionDHCPServer: "dhcp"}
	for _, c := range s.Conditions {
		check, subject := checks[c.Kind], c.Name
		if check == "" {
			check, subject = "daemon", c.Kind+" "+c.Name
		}
		switch {
		case c.OK && c.Kind == api.ConditionHypervisor:
			add(doctor.OK, check, subject, "the daemon is connected")
		case c.OK:
			add(doctor.OK, check, subject, c.Detail)
		default:
			add(doctor.Fail, check, subject, c.Problem)
		}
	}
	addresses := interfaces.AddressWarnings(l) // which interfaces and Unheld report
	for _, w := range s.Warnings {
		switch {
		case slices.ContainsFunc(addresses, func(p *lab.Problem) bool { return p.Key == w.Key && p.Message == w.Message }):
		case w.Path != "":
			add(doctor.Warn, "files", w.Path, w.Error())
		default:
			add(doctor.Warn, "daemon", "warning", w.Error())
		}
	}
	return all
}

// joined returns what the daemon has measured and what the checks have found, each thing once. Of what is good, of interfaces, files and other DHCP
// servers the checks say more, and of servers for questions that fail; of the rest, as of hypervisors, the daemon knows more.
func joined(measured, own []doctor.Finding) []doctor.Finding {
	good := func(f doctor.Finding) bool { return f.Level == doctor.OK }
	same := func(d, f doctor.Finding) bool { return d.Check == f.Check && d.Subject == f.Subject }
	measured = slices.DeleteFunc(measured, func(d doctor.Finding) bool {
		return slices.ContainsFunc(own, func(f doctor.Finding) bool {
			switch d.Check {
			case "dhcp", "files":
				return same(d, f)
			case "dns":
				return f.Check == "dns" && !good(f) && !good(d)
			case "interfaces":
				return same(d, f) && (!good(f) || good(d))
			}
			return same(d, f) && good(f) && good(d) && d.Check != "hypervisors"
		})
	})
	own = slices.DeleteFunc(own, func(f doctor.Finding) bool {
		return slices.ContainsFunc(measured, func(d doctor.Finding) bool {
			return same(d, f) && (good(d) == good(f) || good(d) && d.Check == "hypervisors")
		})
	})
	return slices.Concat(measured, own)
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

// doctorText writes a line for each finding. On a terminal, texts are wrapped beside their subjects, or below them where that is narrow.
func doctorText(out io.Writer, r doctorResult) error {
	checks, subjects := 0, 0
	for _, f := range r.Findings {
		checks, subjects = max(checks, utf8.RuneCountInString(f.Check)), max(subjects, utf8.RuneCountInString(f.Subject))
	}
	const narrow, below = 40, 6
	width, column := widthOf(out), len(doctor.Fail)+2+checks+2+subjects+2
	beside := width == 0 || width-column >= narrow
	if !beside {
		column = below
	}
	for _, f := range r.Findings {
		head := fmt.Sprintf("%-4s  %-*s  %-*s  ", f.Level, checks, f.Check, subjects, f.Subject)
		if !beside {
			fmt.Fprintln(out, strings.TrimRight(head, " "))
			head = strings.Repeat(" ", column)
		}
		for _, line := range wrap(f.Text, width-column) {
			fmt.Fprintln(out, head+line)
			head = strings.Repeat(" ", column)
		}
		if f.Fix != "" {
			for i, line := range wrap(f.Fix, width-column-3) {
				fmt.Fprintf(out, "%s%-3s%s\n", head, map[bool]string{true: "->"}[i == 0], line)
			}
		}
	}
	return nil
}
