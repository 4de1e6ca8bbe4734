package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/store/backup"
)

// A restoring is one call of bootlab restore.
type restoring struct {
	check, yes, arm bool

	lab    *lab.Lab
	backup *backup.Backup
	daemon *api.Client // nil: none is running
}

func restoreCommand(o *options) *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use:         "restore FILE",
		Annotations: map[string]string{onInterrupt: interruptWaits},
		Short:       "Replace the state of a stopped daemon with a backup; shows what changes and asks first",
		Args:        cobra.ExactArgs(1),
		RunE:        func(cmd *cobra.Command, args []string) error { return r.run(cmd, o, args[0]) },
	}
	cmd.Flags().BoolVar(&r.check, "check", false, "only check FILE and show what a restore would change; the daemon may be running")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&r.arm, "arm", false, "arm the hosts that a restore would hold, also those that the backup does not have: their next boot "+
		"installs them, even if they were installed after the backup")
	return cmd
}

func (r *restoring) run(cmd *cobra.Command, o *options, path string) error {
	if err := r.load(cmd.Context(), o, path); err != nil {
		return err
	}
	if r.daemon != nil && !r.check {
		return errors.New("the daemon is running: stop it (systemctl stop bootlab), restore, and start it again; --check shows now what would change")
	}
	if r.daemon != nil {
		return r.checkRunning(cmd, o)
	}
	state, err := statefile.Hold(r.lab.Appliance)
	if err != nil {
		return err
	}
	defer state.Close()
	plan, err := statefile.PlanRestore(r.lab, r.backup, state.Entries, r.rearm())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if state.Damage != "" {
		plan.Warnings = append(plan.Warnings, "the present state is damaged and cannot be compared: "+state.Damage)
	}
	if r.check {
		return o.print(cmd, plan, func() error { return planText(cmd, plan) })
	}
	if !o.json {
		if err := planText(cmd, plan); err != nil {
			return err
		}
	}
	if err := r.confirm(cmd, plan); err != nil {
		return err
	}
	if err := state.Restore(cmd.Context(), r.lab.Appliance, plan); err != nil {
		return err
	}
	return o.print(cmd, plan, func() error { return restoredText(cmd, plan) })
}

// load reads the backup and the lab, and asks whether the daemon is running.
func (r *restoring) load(ctx context.Context, o *options, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.backup, err = backup.Read(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if r.lab, err = load.Lab(o.lab, load.Options{InterfaceAddr: interfaces.AddrIn}); err != nil {
		return fmt.Errorf("a restore needs the lab file, to know which hosts the next boot would install: %w", o.whichLab(err))
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	_, err = c.Status(ctx)
	switch {
	case err == nil:
		r.daemon = c
	case !errors.Is(err, api.ErrNoDaemon):
		return err
	}
	return nil
}

func (r *restoring) rearm() statefile.Rearm {
	if r.arm {
		return statefile.ArmHosts
	}
	return statefile.HoldHosts
}

// checkRunning compares the backup with the state of the running daemon.
func (r *restoring) checkRunning(cmd *cobra.Command, o *options) error {
	stream, err := r.daemon.Backup(cmd.Context())
	if err != nil {
		return err
	}
	defer stream.Close()
	now, err := backup.Read(stream)
	if err != nil {
		return fmt.Errorf("read the state of the daemon: %w", err)
	}
	plan, err := statefile.PlanRestore(r.lab, r.backup, statefile.EntriesOf(now), r.rearm())
	if err != nil {
		return err
	}
	return o.print(cmd, plan, func() error { return planText(cmd, plan) })
}

// mostLeases is how many leases a plan shows.
const mostLeases = 20

func planText(cmd *cobra.Command, r *statefile.Restore) error {
	w := cmd.OutOrStdout()
	age := time.Since(r.Backup.Created).Round(time.Second)
	fmt.Fprintf(w, "backup of %s (%s ago)\nreplaces %s\n", backupText(r.Backup), age, r.File)
	for _, warning := range r.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	fmt.Fprintf(w, "\nactive leases: %d now, %d in the backup\n", r.Leases.Now, r.Leases.Saved)
	if n := len(r.Leases.Lost); n > 0 {
		fmt.Fprintf(w, "%s leased after the backup, free for other machines after the restore; pools probe an address before they offer it:\n", counted(n, "address was", "addresses were"))
		var rows [][]string
		for _, l := range r.Leases.Lost[:min(n, mostLeases)] {
			rows = append(rows, []string{l.IP.String(), macText(l.MAC), l.Name, expiry(l.Expires)})
		}
		if err := table(cmd, "IP MAC NAME EXPIRES", rows); err != nil {
			return err
		}
		if n > mostLeases {
			fmt.Fprintf(w, "… and %d more; --json lists all\n", n-mostLeases)
		}
	}
	if len(r.Hosts) > 0 {
		fmt.Fprintln(w, "\ninstall states that change, or differ from the backup:")
		var rows [][]string
		for _, h := range r.Hosts {
			rows = append(rows, []string{h.Host, cmp.Or(h.Now, "unknown"), h.Saved, cmp.Or(h.After, "unknown"), nextBoot(h)})
		}
		if err := table(cmd, "HOST NOW BACKUP AFTER NEXT-BOOT", rows); err != nil {
			return err
		}
	}
	if text := r.ArmsWarning(); text != "" {
		fmt.Fprintf(w, "\nWARNING: %s\n", text)
	}
	return nil
}

// nextBoot says what the next network boot of a host after the restore does.
func nextBoot(h statefile.Merged) string {
	switch {
	case h.Boot == statefile.BootInstall:
		return "INSTALLS, overwrites its disk"
	case h.Boot == statefile.BootDisk && h.Held():
		return "its own disk; bootlab install arms it"
	case h.Boot == statefile.BootDisk:
		return "its own disk"
	}
	return ""
}

// confirm asks the person at the terminal.
func (r *restoring) confirm(cmd *cobra.Command, plan *statefile.Restore) error {
	if r.yes {
		return nil
	}
	return confirmYes(cmd, "\nReplace "+plan.File+"?", "restores")
}

func restoredText(cmd *cobra.Command, r *statefile.Restore) error {
	text := fmt.Sprintf("\nrestored %s", r.File)
	if r.Kept != "" {
		text += "; the state before is kept as " + r.Kept
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text+"\nstart the daemon (systemctl start bootlab), then see bootlab hosts")
	return err
}
