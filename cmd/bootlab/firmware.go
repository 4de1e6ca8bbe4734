package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/firmware"
)

func firmwareCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "firmware",
		Short: "List network boot programs: version, origin, licence, checksum, and those that are missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := firmware.CheckFolder(dir); err != nil {
				return err
			}
			programs, err := firmware.List(dir)
			if err != nil {
				return err
			}
			return o.print(cmd, programs, func() error { return firmwareText(cmd, programs) })
		},
	}
	cmd.Flags().StringVar(&dir, "firmware", "", "`folder` of network boot programs, as for bootlab serve")
	return cmd
}

func firmwareText(cmd *cobra.Command, programs []firmware.Program) error {
	var there, missing [][]string
	for _, p := range programs {
		if p.Missing != "" {
			missing = append(missing, []string{p.Name, p.Runs, p.Missing})
			continue
		}
		there = append(there, []string{p.Name, p.Runs, p.What, p.Version, p.Licence, strconv.FormatInt(p.Size, 10), p.SHA256[:16], p.Origin})
	}
	if err := table(cmd, "FILE RUNS_ON WHAT VERSION LICENCE BYTES SHA256 ORIGIN", there); err != nil || len(missing) == 0 {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return table(cmd, "MISSING RUNS_ON HOW_TO_GET_IT", missing)
}
