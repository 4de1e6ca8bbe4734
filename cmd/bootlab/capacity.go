package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

func vmCapacity(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "capacity",
		Short: "Show CPUs, memory and storage pools of the hypervisors, and how much is allocated",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Hypervisor, error) {
			return c.Hypervisors(cmd.Context())
		}, capacityText),
	}
}

// capacityText prints a line for each hypervisor, and one more for each further pool.
func capacityText(cmd *cobra.Command, all []api.Hypervisor) error {
	var rows [][]string
	var errs notes
	for _, h := range all {
		errs.add(h.Name, h.Err)
		pools := []string{""}
		for i, p := range h.Pools {
			pools = append(pools[:i], fmt.Sprintf("%s: %s of %s free", p.Name, gibText(p.Free), gibText(p.Capacity)))
			if !p.Active {
				pools[i] = p.Name + ": not active"
			}
		}
		rows = append(rows, []string{h.Name, number(h.CPUs), gibText(h.Memory), gibText(h.Free), gibText(h.Allocated), gibText(h.Others),
			fmt.Sprintf("%d/%d", h.Running, h.VMs), pools[0]})
		for _, p := range pools[1:] {
			rows = append(rows, []string{" ", " ", " ", " ", " ", " ", " ", p})
		}
	}
	if err := list(cmd, "no hypervisors in the lab", "HYPERVISOR CPUS MEMORY FREE ALLOCATED OTHERS RUNNING POOLS", rows); err != nil {
		return err
	}
	errs.write(cmd.OutOrStdout())
	return nil
}

// number is empty for 0: not known.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// gibText writes bytes as GiB, in few columns; empty for 0.
func gibText(n uint64) string {
	if n == 0 {
		return ""
	}
	decimals := 1
	if n >= 100<<30 {
		decimals = 0
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', decimals, 64) + "GiB"
}
