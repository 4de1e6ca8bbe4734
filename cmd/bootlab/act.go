package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

func reloadCommand(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Bring the lab file into force now",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.Reload, error) {
			return c.Reload(cmd.Context(), forced(force))
		}, reloadText),
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if it drops more than half of the hosts")
	return cmd
}

func reloadText(cmd *cobra.Command, r api.Reload) error {
	if r.Err != "" {
		return fmt.Errorf("the lab was refused, generation %d stays in force:\n%s", r.Generation, indent(r.Err))
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "generation %d is in force: %s\n", r.Generation, r.Detail)
	return err
}

func tokenCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Show the token that the dashboard and the API ask for over TCP",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.Token, error) {
			t, err := c.Token(cmd.Context())
			return api.Token{Token: t}, err
		}, func(cmd *cobra.Command, t api.Token) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Token)
			return err
		}),
	}
}

func installCommand(o *options) *cobra.Command {
	var now, done bool
	cmd := &cobra.Command{
		Use:   "install HOST...",
		Short: "Arm the installation of hosts at their next boot",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, hosts []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			return oneByOne(cmd, o, hosts, func(host string) (api.Arming, error) {
				if done {
					return c.MarkInstalled(cmd.Context(), host)
				}
				return c.Install(cmd.Context(), host, cycle(now))
			}, armedText)
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "power-cycle them, through libvirt or their BMC")
	cmd.Flags().BoolVar(&done, "done", false, "install nothing: they are installed, and start from their own disks from now on")
	cmd.MarkFlagsMutuallyExclusive("now", "done")
	return cmd
}

func armedText(cmd *cobra.Command, armed []api.Arming) error {
	for _, a := range armed {
		line := a.Host + " is " + a.State
		if a.Message != "" {
			line += ": " + a.Message
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}

func vmCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "vm", Short: "Manage the lab's virtual machines", Args: subcommand, RunE: help}
	for _, c := range []struct {
		action api.VMAction
		short  string
	}{
		{api.VMCreate, "Create the virtual machine of a host and start it: it boots from the network until it is installed"},
		{api.VMStart, "Start a virtual machine"},
		{api.VMStop, "Ask a virtual machine to power off; pull its plug if it does not listen"},
		{api.VMDelete, "Delete a virtual machine and its disks"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   string(c.action) + " HOST",
			Short: c.short,
			Args:  cobra.ExactArgs(1),
			RunE: ask(o, func(cmd *cobra.Command, client *api.Client, args []string) (api.VM, error) {
				return client.VM(cmd.Context(), args[0], c.action)
			}, vmText),
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the lab's virtual machines and their state",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.VM, error) {
			return c.VMs(cmd.Context())
		}, vmsText),
	})
	return cmd
}

func vmText(cmd *cobra.Command, vm api.VM) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s on %s\n", vm.Host, vm.State, vm.Hypervisor)
	return err
}

func vmsText(cmd *cobra.Command, vms []api.VM) error {
	var rows [][]string
	for _, vm := range vms {
		rows = append(rows, []string{vm.Host, vm.Hypervisor, vm.State, vm.Err})
	}
	return table(cmd, "HOST HYPERVISOR STATE ERROR", rows)
}

func backendCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "backend", Short: "Show members of load balancers, take them out or back in", Args: subcommand, RunE: help}
	for _, c := range []struct {
		action api.BackendAction
		short  string
	}{
		{api.BackendDrain, "Take a member out: no new connections, the open ones go on"},
		{api.BackendReady, "Take a member back in"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   string(c.action) + " BALANCER BACKEND",
			Short: c.short,
			Args:  cobra.ExactArgs(2),
			RunE: ask(o, func(cmd *cobra.Command, client *api.Client, args []string) (api.Backend, error) {
				return client.Backend(cmd.Context(), args[0], args[1], c.action)
			}, func(cmd *cobra.Command, b api.Backend) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s is %s, %d connections open\n", b.Name, b.Addr, b.State, b.Connections)
				return err
			}),
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List load balancers, their members and their health",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Balancer, error) {
			return c.Balancers(cmd.Context())
		}, balancersText),
	})
	return cmd
}

func balancersText(cmd *cobra.Command, bs []api.Balancer) error {
	var rows [][]string
	for _, b := range bs {
		for _, m := range b.Backends {
			state := string(m.State)
			if m.Backup {
				state += " (backup)"
			}
			rows = append(rows, []string{b.Name, b.Listen, m.Name, m.Addr, state, fmt.Sprint(m.Connections), m.Reason})
		}
	}
	return table(cmd, "BALANCER LISTEN BACKEND ADDR STATE CONNECTIONS REASON", rows)
}

func forced(force bool) api.Force {
	if force {
		return api.Forced
	}
	return api.Careful
}

func cycle(now bool) api.Cycle {
	if now {
		return api.CycleNow
	}
	return api.CycleLater
}
