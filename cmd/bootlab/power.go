package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

// powerParallel is how many controllers are asked at a time: a dead one delays no other.
const powerParallel = 32

func powerCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "power", Short: "Switch virtual machines and bare metal on and off", Args: subcommand, RunE: help}
	for _, c := range []struct {
		action api.PowerAction
		short  string
	}{
		{api.PowerStatus, "Show whether hosts are on"},
		{api.PowerOn, "Power hosts on; says which disks are overwritten, if they are armed"},
		{api.PowerOff, "Power hosts off, without asking their system (for a virtual machine, bootlab vm stop asks it)"},
		{api.PowerCycle, "Power hosts off and on; this arms no installation (bootlab install --now does), and says which disks are overwritten, if they are armed already"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   string(c.action) + " HOST|CLUSTER...",
			Short: c.short,
			Args:  cobra.MinimumNArgs(1),
			RunE:  func(cmd *cobra.Command, args []string) error { return switchPower(cmd, o, args, c.action) },
		})
	}
	cmd.AddCommand(powerBoot(o))
	return cmd
}

func powerBoot(o *options) *cobra.Command {
	var always bool
	devices := []string{string(api.BootNetwork), string(api.BootDisk), string(api.BootCD), string(api.BootDefault)}
	cmd := &cobra.Command{
		Use:       "boot " + strings.Join(devices, "|") + " HOST|CLUSTER...",
		Short:     "Set what hosts boot from next; their power stays as it is, and no installation is armed",
		Args:      cobra.MinimumNArgs(2),
		ValidArgs: devices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(devices, args[0]) {
				return fmt.Errorf("%q is no boot device: want %s", args[0], strings.Join(devices, ", "))
			}
			return onControllers(cmd, o, args[1:], func(ctx context.Context, c *api.Client, host string) (api.NextBoot, []string, error) {
				n, err := c.SetBoot(ctx, host, api.BootDevice(args[0]), always)
				how := "once"
				switch {
				case n.Device == api.BootDefault:
					how = "" // from now on
				case n.Always:
					how = "always"
				}
				return n, []string{n.Host, string(n.Device), how, n.By}, err
			}, "HOST BOOT HOW BY")
		},
	}
	cmd.Flags().BoolVar(&always, "always", false, "at each boot, until another device is set; not for the next boot alone")
	return cmd
}

// switchPower does action to all hosts at the same time.
func switchPower(cmd *cobra.Command, o *options, args []string, action api.PowerAction) error {
	if action == api.PowerOn || action == api.PowerCycle {
		c, err := o.client()
		if err != nil {
			return err
		}
		hosts, err := membersOf(cmd.Context(), c, args, func(api.Host) bool { return true })
		if err != nil {
			return err
		}
		if err := sayOverwritten(cmd, c, hosts); err != nil {
			return err
		}
	}
	return onControllers(cmd, o, args, func(ctx context.Context, c *api.Client, host string) (api.Power, []string, error) {
		p, err := c.Power(ctx, host, action)
		return p, []string{p.Host, p.State, p.By}, err
	}, "HOST POWER BY")
}

// sayOverwritten says which disks the next network boot of the machines that are named overwrites. It does not ask: who armed them was asked.
func sayOverwritten(cmd *cobra.Command, c *api.Client, names []string) error {
	s, err := c.State(cmd.Context())
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(s.Install, name) || slices.Contains(s.Unknown, name) })
	hosts, err := c.Hosts(cmd.Context())
	if err != nil {
		return err
	}
	for _, line := range installedDisks(hosts, names) {
		fmt.Fprintln(cmd.ErrOrStderr(), line+" at the next network boot")
	}
	return nil
}

// onControllers calls do for all hosts at the same time, and prints its results with their rows under a heading, in the order of the lab.
// One that fails keeps no other from its turn.
func onControllers[T any](cmd *cobra.Command, o *options, args []string, do func(context.Context, *api.Client, string) (T, []string, error), heading string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	hosts, err := membersOf(cmd.Context(), c, args, func(api.Host) bool { return true })
	if err != nil {
		return err
	}
	type result struct {
		value T
		row   []string
		err   error
	}
	results := make([]result, len(hosts))
	slots := make(chan struct{}, powerParallel)
	var all sync.WaitGroup
	for i, host := range hosts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r := &results[i]
			r.value, r.row, r.err = do(cmd.Context(), c, host)
		})
	}
	all.Wait()
	var failed []hostError
	var values []T
	var rows [][]string
	for i, r := range results {
		if r.err != nil {
			failed = append(failed, hostError{hosts[i], r.err})
			continue
		}
		values, rows = append(values, r.value), append(rows, r.row)
	}
	if len(values) == 0 {
		return joinErrors(failed)
	}
	return errors.Join(o.print(cmd, values, func() error { return table(cmd, heading, rows) }), joinErrors(failed))
}
