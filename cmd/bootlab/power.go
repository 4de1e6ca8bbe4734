package main

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

// powerParallel is how many controllers are asked at a time: a dead one answers nobody else later.
const powerParallel = 32

func powerCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "power", Short: "Switch virtual machines and bare metal on and off", Args: subcommand, RunE: help}
	for _, c := range []struct {
		action api.PowerAction
		short  string
	}{
		{api.PowerStatus, "Show whether hosts are on"},
		{api.PowerOn, "Power hosts on"},
		{api.PowerOff, "Power hosts off, without asking their system (for a virtual machine, bootlab vm stop asks it)"},
		{api.PowerCycle, "Power hosts off and on; this arms no installation (bootlab install --now does)"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   string(c.action) + " HOST|CLUSTER...",
			Short: c.short,
			Args:  cobra.MinimumNArgs(1),
			RunE:  func(cmd *cobra.Command, args []string) error { return switchPower(cmd, o, args, c.action) },
		})
	}
	return cmd
}

// switchPower does action to all hosts at the same time. One that fails keeps no other from its turn.
func switchPower(cmd *cobra.Command, o *options, args []string, action api.PowerAction) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	hosts, err := membersOf(cmd.Context(), c, args, func(api.Host) bool { return true })
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	done := []api.Power{}
	slots := make(chan struct{}, powerParallel)
	var all sync.WaitGroup
	for _, host := range hosts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			p, err := c.Power(cmd.Context(), host, action)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			done = append(done, p)
		})
	}
	all.Wait()
	slices.SortFunc(done, func(a, b api.Power) int { return cmp.Compare(a.Host, b.Host) })
	if len(done) == 0 {
		return failed
	}
	return errors.Join(o.print(cmd, done, func() error {
		var rows [][]string
		for _, p := range done {
			rows = append(rows, []string{p.Host, p.State, p.By})
		}
		return table(cmd, "HOST POWER BY", rows)
	}), failed)
}
