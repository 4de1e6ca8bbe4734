package main

import (
	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

func vmSnapshot(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Create, list, revert to and delete snapshots of a virtual machine", Args: subcommand, RunE: help}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "list HOST",
			Short: "List the snapshots of a virtual machine, the oldest first",
			Args:  cobra.ExactArgs(1),
			RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Snapshot, error) {
				return c.Snapshots(cmd.Context(), args[0])
			}, snapshotsText),
		},
		snapshotAction(o, api.SnapshotCreate, "Create a snapshot of the disks, and of the memory if the machine runs", ""),
		snapshotAction(o, api.SnapshotRevert, "Revert a virtual machine to a snapshot; its changes since then are lost",
			"Revert to the snapshot, and lose what the machine has become since?"),
		snapshotAction(o, api.SnapshotDelete, "Delete a snapshot", "Delete the snapshot?"),
	)
	return cmd
}

// snapshotAction returns the command of an action. It asks the question first; empty: it does not ask.
func snapshotAction(o *options, action api.SnapshotAction, short, question string) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   string(action) + " HOST NAME",
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Snapshot, error) {
			if question != "" && !yes {
				if err := confirmYes(cmd, args[0]+", "+args[1]+": "+question, string(action)+"s"); err != nil {
					return nil, err
				}
			}
			return c.Snapshot(cmd.Context(), args[0], action, args[1])
		}, snapshotsText),
	}
	if question != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return cmd
}

func snapshotsText(cmd *cobra.Command, all []api.Snapshot) error {
	var rows [][]string
	for _, s := range all {
		current := ""
		if s.Current {
			current = "current"
		}
		rows = append(rows, []string{s.Name, localTime(s.Created), s.State, current})
	}
	return list(cmd, "no snapshots", "SNAPSHOT CREATED STATE CURRENT", rows)
}
