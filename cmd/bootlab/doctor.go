package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/lab"
)

func doctorCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check ports, interfaces, other DHCP servers, MTU, files, disk and upstreams; exit status 1 if something fails",
		Long: `Check what would keep the lab from working: before the first start, or beside the daemon, which it asks then. It changes nothing.
Some checks need root, and say so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv(examiner) != "" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(examine(cmd.Context(), o))
			}
			r, err := examineApart(cmd.Context(), o)
			if err != nil {
				return err
			}
			return r.print(cmd, o)
		},
	}
}

// A doctorResult is the result of doctor as JSON.
type doctorResult struct {
	Level    doctor.Level     `json:"level"`   // the worst of all
	Serving  bool             `json:"serving"` // the daemon of this lab runs
	Findings []doctor.Finding `json:"findings"`
}

// examiner is set in the environment of the process that doctor examines this machine with.
const examiner = "BOOTLAB_DOCTOR_PROCESS"

// examineLimit is how long that process may take. Its checks have limits of their own.
const examineLimit = time.Minute

// examineApart is examine in another process. One that waits for a frozen disk does not end before the disk answers, not even by SIGKILL: it is
// left behind then. It has no open file of the caller of doctor, who may wait for the end of these.
func examineApart(ctx context.Context, o *options) (r doctorResult, err error) {
	results, output, err := os.Pipe()
	if err != nil {
		return r, fmt.Errorf("examine this machine: %w", err)
	}
	defer results.Close()
	other := exec.Command("/proc/self/exe", "doctor", "--lab", o.lab, "--server", o.server)
	other.Env = append(os.Environ(), examiner+"=1", "BOOTLAB_TOKEN="+o.token)
	other.Stdout, other.Stderr = output, output
	err = other.Start()
	_ = output.Close()
	if err != nil {
		return r, fmt.Errorf("examine this machine: %w", err)
	}
	go func() { _ = other.Wait() }() // perhaps for hours
	_ = results.SetReadDeadline(time.Now().Add(examineLimit))
	defer context.AfterFunc(ctx, func() { _ = results.SetReadDeadline(time.Now()) })()
	decoder := json.NewDecoder(results)
	if err = decoder.Decode(&r); err == nil {
		return r, nil
	}
	_ = other.Process.Kill()
	switch {
	case ctx.Err() != nil:
		return r, api.ErrInterrupted
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r, fmt.Errorf("examine this machine: no result within %v: is a disk or file server frozen?", examineLimit)
	}
	text, _ := io.ReadAll(decoder.Buffered()) // of a panic, say
	return r, fmt.Errorf("examine this machine: %w\n%s", err, text)
}

// examine returns all findings.
func examine(ctx context.Context, o *options) doctorResult {
	l, found, err := daemon.Check(o.lab, daemon.Lenient)
	r := doctorResult{Findings: labFindings(o, l, found, err)}
	valid := err == nil
	status, unseen := askedDaemon(ctx, o)
	if !valid { // the daemon may serve what the file was before
		l = &lab.Lab{Name: status.Lab}
		if _, err := os.Stat(o.lab); err != nil {
			unseen = api.ErrNoDaemon
		}
	}
	if unseen == nil && !serves(status, o.lab, l) {
		r.Findings = append(r.Findings, doctor.Finding{Check: "daemon", Subject: "daemon", Level: doctor.Warn,
			Text: fmt.Sprintf("serves another lab, %s: what it has measured is left out", cmp.Or(status.LabFile, status.Lab)), Fix: "bootlab status shows it"})
		status, unseen = api.Status{}, api.ErrNoDaemon
	}
	r.Serving = unseen == nil
	var measured, own []doctor.Finding
	if r.Serving {
		if refused := status.Reload.Refused(); refused != "" && !valid { // for what labFindings reports
			status.Reload.Err = ""
			r.Findings = append(r.Findings, doctor.Finding{Check: "daemon", Subject: "reload", Level: doctor.Warn, Text: refused, Fix: "fix the lab file; it reloads by itself"})
		}
		measured = doctor.FromStatus(status, l, found.Faults)
	}
	if valid {
		m := daemon.Examined(l, o.lab, found.Warnings)
		m.Serving, m.Status = r.Serving, status
		if !r.Serving && !errors.Is(unseen, api.ErrNoDaemon) {
			m.Unseen = unseen
		}
		m.Elsewhere = status.Namespace != "" && status.Namespace != daemon.Namespace()
		own = doctor.Run(ctx, m)
	}
	r.Findings = append(r.Findings, doctor.Join(measured, own)...)
	r.Level = doctor.Worst(r.Findings)
	return r
}

// labFindings returns what is wrong with the lab file, whose check found that and err; or that nothing is.
func labFindings(o *options, l *lab.Lab, found daemon.Findings, err error) (all []doctor.Finding) {
	for _, p := range slices.Concat(problemsOf(err), found.Faults) {
		text := p.Message
		if p.Key != "" {
			text = p.Key + ": " + text
		}
		f := doctor.Finding{Check: "lab", Subject: p.Pos.String(), Level: doctor.Fail, Text: text}
		if hint := p.Hint(); hint != "" {
			f.Text, f.Fix = strings.TrimRight(strings.TrimSuffix(text, hint), ":; "), hint
		}
		all = append(all, f)
	}
	if err == nil && len(found.Faults) == 0 {
		all = append(all, doctor.Finding{Check: "lab", Subject: o.lab, Level: doctor.OK, Text: "is valid: " + l.Summary()})
	}
	return all
}

// print prints the result. The error says how many findings have the level fail.
func (r doctorResult) print(cmd *cobra.Command, o *options) error {
	if err := o.print(cmd, r, func() error { return doctorText(cmd.OutOrStdout(), r) }); err != nil {
		return err
	}
	if r.Level != doctor.Fail {
		return nil
	}
	n := len(slices.DeleteFunc(r.Findings, func(f doctor.Finding) bool { return f.Level != doctor.Fail }))
	return fmt.Errorf("%s found", lab.Plural(n, "failure"))
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
