package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func reloadCommand(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Reload the lab file",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return reload(cmd, o, forced(force)) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "reload even if more than half of the hosts, networks, clusters, balancers or zones would go")
	return cmd
}

// reload makes the daemon read the lab again. Like check it fails if the lab has an error, also one for which a daemon refuses a machine or a
// zone alone.
func reload(cmd *cobra.Command, o *options, force api.Force) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	r, err := c.Reload(cmd.Context(), force)
	if err != nil {
		return err
	}
	if err := o.print(cmd, r, func() error { return reloadText(cmd, r) }); err != nil || len(r.Faults) == 0 {
		return err
	}
	return fmt.Errorf("the lab file has %s; the daemon has applied it, and refuses the machines, zones and certificates with errors until %s fixed", countErrors(len(r.Faults)), areThey(len(r.Faults)))
}

func reloadText(cmd *cobra.Command, r api.Reload) error {
	if r.Err != "" {
		return fmt.Errorf("the lab file was refused; generation %d stays in force:\n%s", r.Generation, indent(r.Err))
	}
	for _, fault := range r.Faults {
		fmt.Fprintln(cmd.ErrOrStderr(), fault)
	}
	if r.Armed != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+r.Armed)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "generation %d is in use: %s\n", r.Generation, r.Detail)
	return err
}

func tokenCommand(o *options) *cobra.Command {
	text := func(cmd *cobra.Command, t api.Token) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Token)
		return err
	}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Show the token that the dashboard and the API require over TCP, or replace it",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.Token, error) {
			t, err := c.Token(cmd.Context())
			return api.Token{Token: t}, err
		}, text),
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "rotate",
		Short: "Replace the token with a new one, and print it; the old one and all sessions end at once",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.Token, error) {
			return c.RotateToken(cmd.Context())
		}, text),
	})
	return cmd
}

func installCommand(o *options) *cobra.Command {
	var now, done, yes bool
	w := &waiter{}
	cmd := &cobra.Command{
		Use:   "install HOST|CLUSTER...",
		Short: "Install hosts, or the machines of clusters, at their next network boot",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			hosts, err := installable(cmd, c, args)
			if err != nil {
				return err
			}
			if !done && !yes {
				if err := confirmInstall(cmd, c, hosts, now); err != nil {
					return err
				}
			}
			if err := w.start(cmd.Context(), c, hosts); err != nil {
				return err
			}
			err = oneByOne(cmd, o, hosts, func(host string) (api.Arming, error) {
				if done {
					return c.MarkInstalled(cmd.Context(), host)
				}
				return c.Install(cmd.Context(), host, cycle(now))
			}, armedText)
			if err != nil {
				return err
			}
			return w.wait(cmd.Context(), hosts)
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "power-cycle the hosts now, through libvirt or their BMC")
	cmd.Flags().BoolVar(&done, "done", false, "mark the hosts as installed: they boot from their own disks")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before disks are overwritten; needed where standard input is no terminal")
	cmd.MarkFlagsMutuallyExclusive("now", "done")
	w.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("wait", "done")
	return cmd
}

// installable returns the hosts that are named, and those of the clusters that are named that have something to install. It says which
// have not.
func installable(cmd *cobra.Command, c *api.Client, names []string) ([]string, error) {
	var left []string
	cluster := map[string]bool{} // of left
	hosts, err := membersOf(cmd.Context(), c, names, func(h api.Host) bool {
		if h.Disk == "" && !slices.Contains(left, h.Name) {
			left, cluster[h.Cluster] = append(left, h.Name), true
		}
		return h.Disk != ""
	})
	hosts = slices.DeleteFunc(hosts, func(name string) bool { return cluster[name] })
	if err == nil {
		err = known(cmd.Context(), c, hosts)
	}
	left = slices.DeleteFunc(left, func(name string) bool { return slices.Contains(hosts, name) }) // it was named: the daemon says why not
	switch {
	case err != nil || len(left) == 0:
	case len(hosts) == 0:
		return nil, fmt.Errorf("nothing installs a machine of cluster %s: %s; give them profiles that install", strings.Join(names, ", "), strings.Join(left, ", "))
	default:
		printNotInstalled(cmd, left)
	}
	return hosts, err
}

// known returns an error for names that no host of the lab has, before anything is done to another.
func known(ctx context.Context, c *api.Client, names []string) error {
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return err
	}
	var all, missing []string
	for _, h := range hosts {
		all = append(all, h.Name, h.Cluster)
	}
	hint := "bootlab hosts and bootlab clusters list them"
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		if _, err := lab.ParseMAC(name); err == nil {
			continue // it may be a machine of a pool: the daemon knows
		}
		missing = append(missing, strconv.Quote(name))
		hint = nearest(name, all, hint)
		if i := slices.IndexFunc(hosts, func(h api.Host) bool { return h.IP.IsValid() && h.IP.String() == name }); i >= 0 {
			hint = "that is " + hosts[i].Name
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("no host or cluster %s in the lab (%s)", strings.Join(missing, ", "), hint)
}

// nearest returns "did you mean X?", or hint if no name is near.
func nearest(name string, names []string, hint string) string {
	if near := lab.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	return hint
}

// printNotInstalled says which machines of a cluster are not installed.
func printNotInstalled(cmd *cobra.Command, left []string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "Nothing installs these machines, and they are left as they are: %s.\n", strings.Join(left, ", "))
}

// confirmInstall says which disks are overwritten, and asks the person at the terminal.
func confirmInstall(cmd *cobra.Command, c *api.Client, names []string, now bool) error {
	hosts, err := c.Hosts(cmd.Context())
	if err != nil {
		return err
	}
	disks := installedDisks(hosts, names)
	if len(disks) == 0 {
		return nil // the daemon says why not
	}
	when := "at the next network boot"
	if now {
		when = "now, after a power cycle"
	}
	return confirmYes(cmd, fmt.Sprintf("%s\nInstall %s?", strings.Join(disks, "\n"), when), "installs")
}

// installedDisks says which disks an installation of the hosts that are named overwrites. Those with the same disk share a line.
func installedDisks(hosts []api.Host, names []string) (lines []string) {
	var all []sentence
	for _, h := range hosts {
		if h.Disk != "" && slices.Contains(names, h.Name) {
			all = append(all, sentence{h.Name, "overwrites " + h.Disk})
		}
	}
	for _, s := range byText(all) {
		lines = append(lines, strings.Join(s.hosts, ", ")+": "+s.text)
	}
	return lines
}

func armedText(cmd *cobra.Command, armed []api.Arming) error {
	sentences := make([]sentence, 0, len(armed))
	for _, a := range armed {
		text := a.Host + " is " + a.State
		if a.Message != "" {
			text += ": " + a.Message
		}
		sentences = append(sentences, sentence{a.Host, text})
	}
	for _, s := range byText(sentences) {
		line := s.text
		if len(s.hosts) > 1 {
			_, line, _ = strings.Cut(s.text, " is ")
			line = strings.Join(s.hosts, ", ") + " are " + strings.Replace(line, ": ", ": each ", 1)
			line = strings.Replace(line, ": each it ", ": each ", 1)
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}

// confirmYes asks the person at the terminal, and is an error unless the answer is yes. does is what --yes does without asking.
func confirmYes(cmd *cobra.Command, question, does string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return fmt.Errorf("nothing was changed: standard input is no terminal to ask on; --yes %s without asking", does)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

func backendCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "backend", Short: "Show backends of load balancers; drain, add, remove or weight them", Args: subcommand, RunE: help}
	cmd.AddCommand(
		changeCommand(o, &api.BackendChange{Action: api.BackendDrain}, "Drain a backend: no new connections; open connections continue"),
		changeCommand(o, &api.BackendChange{Action: api.BackendReady}, "Put a backend back into service"),
		changeCommand(o, &api.BackendChange{Action: api.BackendRemove}, "Remove a backend that was added; open connections continue"),
	)
	add := &api.BackendChange{Action: api.BackendAdd}
	adding := changeCommand(o, add, "Add a backend, a host or an address with a port, until it is removed or in the lab file")
	adding.Use = "add BALANCER HOST:PORT"
	adding.Flags().IntVar(&add.Weight, "weight", 0, fmt.Sprintf("share of new connections, 1 to %d (default 1; of a backend that was added before, the one it has)", lab.MaxWeight))
	adding.Flags().BoolVar(&add.Backup, "backup", false, "use it only while no other backend is up")
	cmd.AddCommand(adding, weightCommand(o), liveCommand(o))
	cmd.AddCommand(&cobra.Command{
		Use:   "list [BALANCER...]",
		Short: "List load balancers, their backends and their health",
		Args:  cobra.ArbitraryArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Balancer, error) {
			all, err := c.Balancers(cmd.Context())
			if err != nil {
				return nil, err
			}
			return balancersNamed(all, args)
		}, balancersText),
	})
	return cmd
}

// changeCommand returns a command with the arguments BALANCER BACKEND.
func changeCommand(o *options, change *api.BackendChange, short string) *cobra.Command {
	return &cobra.Command{
		Use:   string(change.Action) + " BALANCER BACKEND",
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: ask(o, func(cmd *cobra.Command, client *api.Client, args []string) ([]api.Backend, error) {
			return client.Backend(cmd.Context(), args[0], args[1], *change)
		}, func(cmd *cobra.Command, changed []api.Backend) error {
			for _, b := range changed {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), changedText(change.Action, b)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// changedText says what became of a backend.
func changedText(change api.BackendAction, b api.Backend) string {
	if change == api.BackendRemove {
		return withAddr(b) + " is removed"
	}
	return fmt.Sprintf("%s is %s, weight %d, %s open", withAddr(b), changedState(change, b), b.Weight, lab.Plural(int(b.Connections), "connection"))
}

// withAddr is the name of a backend and its address, which may be its name.
func withAddr(b api.Backend) string {
	if b.Name == b.Addr {
		return b.Name
	}
	return b.Name + " " + b.Addr
}

// changedState says what a backend is after a change, with the state that bootlab backend list shows. One that was drained, or is new, was not checked yet.
func changedState(change api.BackendAction, b api.Backend) string {
	if b.State == api.BackendUnknown && (change == api.BackendReady || change == api.BackendAdd) {
		return string(b.State) + ": it gets connections, and was not checked yet"
	}
	if b.State == api.BackendUnchecked && (change == api.BackendReady || change == api.BackendAdd) {
		return string(b.State) + ": it gets connections, and has no checks"
	}
	return string(b.State)
}

func weightCommand(o *options) *cobra.Command {
	change := &api.BackendChange{Action: api.BackendWeight}
	cmd := changeCommand(o, change, fmt.Sprintf("Set the share of new connections of a backend, 1 to %d; default: that of the lab file", lab.MaxWeight))
	run := cmd.RunE
	cmd.Use, cmd.Args = "weight BALANCER BACKEND WEIGHT|default", cobra.ExactArgs(3)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[2] != "default" {
			n, err := strconv.Atoi(args[2])
			if err != nil || n < 1 || n > lab.MaxWeight {
				return fmt.Errorf("%q is not a weight: want 1 to %d, or default", args[2], lab.MaxWeight)
			}
			change.Weight = n
		}
		return run(cmd, args[:2])
	}
	return cmd
}

// weightText returns the weight of a backend, and that of the lab file if it is another.
func weightText(m api.Backend) string {
	if m.LabWeight > 0 {
		return fmt.Sprintf("%d (lab file %d)", m.Weight, m.LabWeight)
	}
	return strconv.Itoa(m.Weight)
}

// balancersNamed returns the balancers of these names, in the lab's order; without names all.
func balancersNamed(all []api.Balancer, names []string) ([]api.Balancer, error) {
	known := make([]string, len(all))
	for i, b := range all {
		known[i] = b.Name
	}
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		return nil, fmt.Errorf("no balancer %q in the lab; %s", name, nearest(name, known, "bootlab backend list lists them"))
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(b api.Balancer) bool { return !slices.Contains(names, b.Name) }), nil
}

func balancersText(cmd *cobra.Command, bs []api.Balancer) error {
	var rows [][]string
	for _, b := range bs {
		if len(b.Backends) == 0 {
			rows = append(rows, []string{b.Name, cmp.Or(b.Listen, "-"), "-", "-", "redirects"})
		}
		for _, m := range b.Backends {
			rows = append(rows, []string{b.Name, cmp.Or(b.Listen, "-"), m.Name, m.Addr, backendState(m), weightText(m), m.Load(), m.Reason})
		}
	}
	return list(cmd, "no load balancers", "BALANCER LISTEN BACKEND ADDR STATE WEIGHT CONNECTIONS REASON", rows)
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
