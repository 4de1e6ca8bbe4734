package main

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

func vmCapacity(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "capacity",
		Short: "Show what the hypervisors have, and what of it is taken",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Hypervisor, error) {
			return c.Hypervisors(cmd.Context())
		}, capacityText),
	}
}

// capacityText prints a line for each hypervisor, and one more for each further pool.
func capacityText(cmd *cobra.Command, all []api.Hypervisor) error {
	var rows [][]string
	for _, h := range all {
		pools := []string{""}
		for i, p := range h.Pools {
			pools = append(pools[:i], fmt.Sprintf("%s: %s of %s free", p.Name, gibText(p.Free), gibText(p.Capacity)))
			if !p.Active {
				pools[i] = p.Name + ": not active"
			}
		}
		rows = append(rows, []string{h.Name, number(h.CPUs), gibText(h.Memory), gibText(h.Free), gibText(h.Allocated), gibText(h.Others),
			fmt.Sprintf("%d/%d", h.Running, h.VMs), cmp.Or(h.Err, pools[0])})
		for _, p := range pools[1:] {
			rows = append(rows, []string{" ", " ", " ", " ", " ", " ", " ", p})
		}
	}
	return table(cmd, "HYPERVISOR CPUS MEMORY FREE ALLOCATED OTHERS RUNNING POOLS", rows)
}

// number is empty for 0: not known.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// gibText writes bytes as GiB; empty for 0.
func gibText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + "GiB"
}
