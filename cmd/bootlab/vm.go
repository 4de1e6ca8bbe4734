package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func vmCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "vm", Short: "Manage virtual machines", Args: subcommand, RunE: help}
	cmd.AddCommand(
		vmPlan(o), vmApply(o), vmCapacity(o),
		vmBoot(o, api.VMCreate, "Create virtual machines and start them: they boot from the network until they are installed"),
		vmBoot(o, api.VMStart, "Start virtual machines; says which disks are overwritten, if they are armed"),
		vmStop(o), vmDelete(o), vmConsole(o), vmLog(o), vmSnapshot(o), vmNetwork(o),
		vmAction(o, api.VMForget, "Forget a virtual machine on a hypervisor that is gone for good, so that it may be created on another", nil),
		&cobra.Command{
			Use:   "list",
			Short: "List virtual machines and their state",
			Args:  cobra.NoArgs,
			RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.VM, error) {
				return c.VMs(cmd.Context())
			}, vmsText),
		})
	return cmd
}

// vmBoot returns the command of an action that starts machines, whose boots it can wait for.
func vmBoot(o *options, action api.VMAction, short string) *cobra.Command {
	w := &waiter{}
	cmd := vmActionThen(o, action, short, func(cmd *cobra.Command, c *api.Client, hosts []string) (api.VMOptions, error) {
		if action == api.VMStart {
			if err := sayOverwritten(cmd, c, hosts); err != nil {
				return api.VMOptions{}, err
			}
		}
		return api.VMOptions{}, w.start(cmd.Context(), c, hosts)
	}, w.wait)
	w.flags(cmd)
	return cmd
}

// vmAction returns the command of an action. options returns its details, nil for none, or an error to end the command.
func vmAction(o *options, action api.VMAction, short string,
	options func(*cobra.Command, *api.Client, []string) (api.VMOptions, error),
) *cobra.Command {
	return vmActionThen(o, action, short, options, func(context.Context, []string) error { return nil })
}

// vmActionThen is vmAction, and then is called with the machines that the action was done to.
func vmActionThen(o *options, action api.VMAction, short string,
	options func(*cobra.Command, *api.Client, []string) (api.VMOptions, error), then func(context.Context, []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   string(action) + " HOST|CLUSTER...",
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			hosts, err := machinesOf(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			var opts api.VMOptions
			if options != nil {
				if opts, err = options(cmd, c, hosts); err != nil {
					return err
				}
			}
			vms, err := onHypervisors(cmd, o, c, hosts, action, opts)
			var names []string
			for _, vm := range vms {
				names = append(names, vm.Host)
			}
			err = errors.Join(err, then(cmd.Context(), names))
			if len(args) == 1 && len(vms) == 1 && vms[0].Host == args[0] { // one machine is no list
				return errors.Join(o.print(cmd, vms[0], func() error { return nil }), err)
			}
			if len(vms) == 0 {
				return err
			}
			return errors.Join(o.print(cmd, vms, func() error { return nil }), err)
		},
	}
}

// machinesOf returns the hosts that are named, and the virtual machines of the clusters that are named.
func machinesOf(ctx context.Context, c *api.Client, names []string) (hosts []string, err error) {
	return membersOf(ctx, c, names, func(h api.Host) bool { return h.VM != "" })
}

// membersOf returns the hosts that are named, and those of the clusters that are named that fit, in the order of the lab. A cluster of which
// none fits has no hosts here. What is neither is left to the
// daemon: it may be a machine whose host is no longer in the lab file.
func membersOf(ctx context.Context, c *api.Client, names []string, fits func(api.Host) bool) (hosts []string, err error) {
	all, err := c.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var members []string
		for _, h := range all {
			if h.Cluster == name && fits(h) {
				members = append(members, h.Name)
			}
		}
		if len(members) == 0 || slices.ContainsFunc(all, func(h api.Host) bool { return h.Name == name }) {
			members = []string{name}
		}
		for _, host := range members {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	order := map[string]int{} // in the lab; what it does not have comes last
	for i, h := range all {
		order[h.Name] = i - len(all)
	}
	slices.SortStableFunc(hosts, func(a, b string) int { return order[a] - order[b] })
	return hosts, nil
}

// maxUnplaced is how many machines without a hypervisor are worked on at the same time.
const maxUnplaced = 4

// onHypervisors does something to machines: one after the other on each hypervisor, on all hypervisors at the same time. A failure
// keeps no other machine from its turn. Without --json each is printed when it is done.
func onHypervisors(cmd *cobra.Command, o *options, c *api.Client, hosts []string, action api.VMAction, opts api.VMOptions) (done []api.VM, failed error) {
	at := map[string]string{} // hypervisor, by host
	if len(hosts) > 1 {
		vms, err := c.VMs(cmd.Context())
		if err != nil {
			return nil, err
		}
		for _, vm := range vms {
			at[vm.Host] = vm.Hypervisor
		}
	}
	byHypervisor := map[string][]string{}
	for i, host := range hosts {
		on := at[host]
		if on == "" { // none was chosen yet: those may go to several
			on = fmt.Sprint(" ", i%maxUnplaced)
		}
		byHypervisor[on] = append(byHypervisor[on], host)
	}
	var mu sync.Mutex
	var hypervisors sync.WaitGroup
	for _, mine := range byHypervisor {
		hypervisors.Go(func() {
			for i, host := range mine {
				vm, err := c.VM(cmd.Context(), host, action, opts)
				if err != nil && cmd.Context().Err() != nil {
					err = interrupted(host, mine[i+1:], action, opts)
				}
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, err)
				} else {
					done = append(done, vm)
					if !o.json {
						fmt.Fprintln(cmd.OutOrStdout(), doneLine(vm, action))
					}
				}
				mu.Unlock()
				if errors.Is(err, api.ErrNoDaemon) || cmd.Context().Err() != nil {
					return
				}
			}
		})
	}
	hypervisors.Wait()
	return done, failed
}

// interrupted says what becomes of a machine on which an action was under way when the command was interrupted, and which were not begun.
func interrupted(host string, left []string, action api.VMAction, opts api.VMOptions) error {
	text := fmt.Sprintf("interrupted; the daemon continues to %s %s: bootlab vm plan %[2]s shows it", action, host)
	if action == api.VMStop && !opts.Force {
		text = fmt.Sprintf("interrupted; %s was asked to shut down and is not forced off any more: bootlab vm list shows whether it is off, bootlab vm stop --force %[1]s forces it off", host)
	}
	if len(left) > 0 {
		text += "; not begun: " + strings.Join(left, ", ")
	}
	return errors.New(text)
}

// doneLine says what an action made of a machine.
func doneLine(vm api.VM, action api.VMAction) string {
	if action == api.VMDelete && vm.State == "absent" {
		vm.State = "deleted"
	}
	return vmLine(vm)
}

func vmLine(vm api.VM) string {
	if vm.Hypervisor == "" {
		return vm.Host + " is " + vm.State
	}
	return vm.Host + " is " + vm.State + " on " + vm.Hypervisor
}

func vmStop(o *options) *cobra.Command {
	var opts api.VMOptions
	cmd := vmAction(o, api.VMStop, "Shut virtual machines down; force them off if they do not respond",
		func(*cobra.Command, *api.Client, []string) (api.VMOptions, error) {
			if opts.Timeout <= 0 || opts.Timeout > api.MaxVMTimeout {
				return opts, fmt.Errorf("--timeout %s: want more than 0 and at most %s", opts.Timeout, api.MaxVMTimeout)
			}
			return opts, nil
		})
	cmd.Flags().DurationVar(&opts.Timeout, "timeout", 20*time.Second, "how long a machine has to shut down before it is forced off")
	cmd.Flags().BoolVar(&opts.Force, "force", false, "force them off now")
	cmd.MarkFlagsMutuallyExclusive("timeout", "force")
	return cmd
}

func vmDelete(o *options) *cobra.Command {
	var opts api.VMOptions
	var yes bool
	cmd := vmAction(o, api.VMDelete, "Delete virtual machines; keep their disks unless --disks is given",
		func(cmd *cobra.Command, c *api.Client, hosts []string) (api.VMOptions, error) {
			if yes {
				return opts, nil
			}
			vms, err := c.VMs(cmd.Context())
			if err != nil {
				return opts, err
			}
			vms = slices.DeleteFunc(vms, func(vm api.VM) bool { return !slices.Contains(hosts, vm.Host) })
			if len(vms) == 0 {
				return opts, nil // the daemon's answer says that there is none
			}
			disks := "keep its disks"
			if opts.Disks {
				disks = "wipe its disks"
			}
			var lines []string
			for _, vm := range vms {
				lines = append(lines, vmLine(vm))
			}
			question := lines[0] + ". Delete it and " + disks + "?"
			if len(lines) > 1 {
				question = strings.Join(lines, "\n") + "\nDelete these " + fmt.Sprint(len(lines)) + " and " + strings.Replace(disks, "its", "their", 1) + "?"
			}
			return opts, confirmYes(cmd, question, "deletes")
		})
	cmd.Flags().BoolVar(&opts.Disks, "disks", false, "delete their disks too, also those that an earlier delete kept")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func vmsText(cmd *cobra.Command, vms []api.VM) error {
	var rows [][]string
	var errs notes
	for _, vm := range vms {
		state := vm.State
		if vm.Orphan {
			state += ", orphan"
		}
		rows = append(rows, []string{vm.Host, vm.Hypervisor, state})
		errs.add(vm.Host, vm.Err)
	}
	if err := list(cmd, "no virtual machines", "HOST HYPERVISOR STATE", rows); err != nil {
		return err
	}
	errs.write(cmd.OutOrStdout())
	return nil
}

func vmPlan(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "plan [HOST|CLUSTER...]",
		Args:  cobra.ArbitraryArgs,
		Short: "Compare virtual machines with the lab file: missing, changed, drifted, unstarted, restart, orphaned, duplicated",
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.VMPlan, error) {
			return planOf(cmd.Context(), c, args)
		}, vmPlanText),
	}
}

func planOf(ctx context.Context, c *api.Client, args []string) ([]api.VMPlan, error) {
	if len(args) == 0 {
		return c.VMPlan(ctx)
	}
	hosts, err := machinesOf(ctx, c, args)
	if err != nil {
		return nil, err
	}
	return c.VMPlan(ctx, hosts...)
}

// vmPlanText writes a line for each machine, and its details below: they may be longer than a terminal is wide. Why machines are unknown
// is the same for all of a hypervisor: it is written once, below all.
func vmPlanText(cmd *cobra.Command, plan []api.VMPlan) error {
	var rows [][]string
	for _, p := range plan {
		rows = append(rows, []string{plannedName(p), p.Hypervisor, p.State, string(p.Condition)})
	}
	out := cmd.OutOrStdout()
	lines := layTable([]string{"HOST", "HYPERVISOR", "STATE", "PLAN"}, rows, widthOf(out))
	var unknown notes
	for i, p := range plan {
		for _, detail := range p.Details {
			if p.Condition == api.VMUnknown {
				unknown.add(plannedName(p), detail)
				continue
			}
			lines[i+1] = append(lines[i+1], "  "+lab.Printable(detail))
		}
	}
	if err := writeLines(out, lines); err != nil {
		return err
	}
	unknown.write(out)
	return nil
}

// plannedName is what a plan calls a machine or a network.
func plannedName(p api.VMPlan) string {
	if p.Network != "" {
		return "network " + p.Network
	}
	return p.Host
}

// applied are the conditions that vm apply changes.
var applied = []api.VMCondition{api.VMMissing, api.VMChanged, api.VMDrifted, api.VMUnstarted}

func vmApply(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "apply [HOST|CLUSTER...]",
		Args:  cobra.ArbitraryArgs,
		Short: "Create the virtual machines that are missing, redefine those that differ from the lab file, and start those whose start failed; nothing is stopped or deleted",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			plan, err := planOf(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			var hosts []string
			networks, left := applyNetworks(cmd, o, c, plan)
			left = errors.Join(left, unreached(plan))
			for _, p := range plan {
				if p.Network == "" && slices.Contains(applied, p.Condition) {
					hosts = append(hosts, p.Host)
				}
			}
			vms, err := onHypervisors(cmd, o, c, hosts, api.VMApply, api.VMOptions{})
			after, asked := planOf(cmd.Context(), c, args)
			if asked != nil {
				return errors.Join(err, left, asked)
			}
			return errors.Join(o.print(cmd, after, func() error {
				line, open := applySummary(networks+len(vms), notDone(hosts, vms), after)
				fmt.Fprintln(cmd.OutOrStdout(), line)
				if len(open) == 0 {
					return nil
				}
				return vmPlanText(cmd, open)
			}), err, left)
		},
	}
}

// unreached returns an error for what apply leaves as it is because bootlab does not know its state, or an admin has to decide: one line
// for each hypervisor. Why is in the plan.
func unreached(plan []api.VMPlan) error {
	var all notes
	for _, p := range plan {
		switch {
		case p.Condition != api.VMUnknown && p.Condition != api.VMDuplicated:
		case p.Hypervisor == "":
			all.add(plannedName(p), string(p.Condition)+", and on no hypervisor yet")
		default:
			all.add(plannedName(p), string(p.Condition)+" on "+p.Hypervisor)
		}
	}
	var errs []error
	for _, text := range all.texts {
		errs = append(errs, errors.New(text+": "+lab.Named(all.about[text], mostNamed)))
	}
	return errors.Join(errs...)
}

// notDone returns the hosts that an action failed for.
func notDone(hosts []string, done []api.VM) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		return slices.ContainsFunc(done, func(vm api.VM) bool { return vm.Host == host })
	})
}

// applySummary says what an apply has done, and returns what is not as in the lab file. A machine that was defined and does not start
// has failed: the plan alone would call it ok.
func applySummary(done int, failed []string, after []api.VMPlan) (line string, open []api.VMPlan) {
	for _, p := range after {
		if p.Condition == api.VMOK && p.Network == "" && slices.Contains(failed, p.Host) {
			p.Condition = "failed"
		}
		if p.Condition != api.VMOK {
			open = append(open, p)
		}
	}
	line = fmt.Sprintf("%d applied, ", done)
	if len(failed) > 0 {
		line += fmt.Sprintf("%d failed, ", len(failed))
	}
	return line + fmt.Sprintf("%d of %d as in the lab file", len(after)-len(open), len(after)), open
}

// applyNetworks makes the libvirt networks of a plan as they are in the lab file, before machines need them. It returns how many.
func applyNetworks(cmd *cobra.Command, o *options, c *api.Client, plan []api.VMPlan) (done int, left error) {
	for _, p := range plan {
		switch {
		case p.Network == "":
		case slices.Contains(applied, p.Condition):
			after, err := c.Network(cmd.Context(), p.Hypervisor, p.Network, api.NetworkApply)
			if err != nil {
				left = errors.Join(left, err)
				continue
			}
			done++
			if !o.json {
				fmt.Fprintln(cmd.OutOrStdout(), networkLine(after))
			}
		}
	}
	return done, left
}

func networkLine(p api.VMPlan) string {
	return "network " + p.Network + " is " + p.State + " on " + p.Hypervisor
}

// networkExists returns an error for a libvirt network that a plan does not have, or has as absent.
func networkExists(ctx context.Context, c *api.Client, hypervisor, network string) error {
	plan, err := c.VMPlan(ctx)
	if err != nil {
		return err
	}
	for _, p := range plan {
		if p.Network == network && p.Hypervisor == hypervisor && p.State != "absent" {
			return nil
		}
	}
	return fmt.Errorf("there is no libvirt network %q of this lab on hypervisor %q; bootlab vm plan lists networks", network, hypervisor)
}

func vmNetwork(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "network", Short: "Delete libvirt networks that bootlab created", Args: subcommand, RunE: help}
	var yes bool
	remove := &cobra.Command{
		Use:   "delete HYPERVISOR NETWORK",
		Short: "Stop and delete a libvirt network, unless running machines use it; the next vm apply or create creates it again if the lab file has it",
		Args:  cobra.ExactArgs(2),
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) (api.VMPlan, error) {
			if err := networkExists(cmd.Context(), c, args[0], args[1]); err != nil {
				return api.VMPlan{}, err
			}
			if !yes {
				if err := confirmYes(cmd, "Delete libvirt network "+args[1]+" on "+args[0]+"?", "deletes"); err != nil {
					return api.VMPlan{}, err
				}
			}
			return c.Network(cmd.Context(), args[0], args[1], api.NetworkDelete)
		}, func(cmd *cobra.Command, p api.VMPlan) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), networkLine(p))
			return err
		}),
	}
	remove.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.AddCommand(remove)
	return cmd
}
