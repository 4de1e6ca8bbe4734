package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

const (
	lookEvery = time.Second
	upTimeout = 90 * time.Minute // a bare-metal OpenShift cluster needs an hour

	installUnknown = "unknown" // api.Host.Install of a host whose state was lost
)

func clustersCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "clusters [CLUSTER...]",
		Short: "List clusters, their machines and what each waits for",
		Args:  cobra.ArbitraryArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Cluster, error) {
			if len(args) == 0 {
				return c.Clusters(cmd.Context())
			}
			return findClusters(cmd.Context(), c, args)
		}, func(cmd *cobra.Command, cs []api.Cluster) error {
			if len(cs) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no cluster of kind openshift, kubernetes or talos")
			}
			for _, cl := range cs {
				if _, err := fmt.Fprint(cmd.OutOrStdout(), clusterText(cl, widthOf(cmd.OutOrStdout()))); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// An upOptions is how a cluster is brought up.
type upOptions struct {
	install, yes, detach bool
	timeout              time.Duration
}

func upCommand(o *options) *cobra.Command {
	var u upOptions
	cmd := &cobra.Command{
		Use:   "up CLUSTER",
		Short: "Bring a cluster up and watch it until it is ready",
		Long: "Switch on the machines of a cluster in the right order, those of the control plane first, and watch them until the cluster is ready.\n" +
			"The daemon does the work: an interrupt ends the watching, nothing else.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return up(cmd, o, u, args[0]) },
	}
	cmd.Flags().BoolVar(&u.install, "install", false, "install all machines again, also those that are installed")
	cmd.Flags().BoolVar(&u.yes, "yes", false, "do not ask before disks are overwritten")
	cmd.Flags().BoolVar(&u.detach, "detach", false, "do not watch")
	cmd.Flags().DurationVar(&u.timeout, "timeout", upTimeout, "how long to watch; the daemon continues")
	return cmd
}

func up(cmd *cobra.Command, o *options, u upOptions, name string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	cl, err := findCluster(cmd.Context(), c, name)
	if err != nil {
		return err
	}
	if cl.Phase == api.ClusterReady && cl.Up.IsZero() && !u.install {
		return o.print(cmd, cl, func() error { _, err := fmt.Fprintln(cmd.OutOrStdout(), name+" is ready: nothing to do"); return err })
	}
	installs, err := u.installs(cmd, c, cl)
	if err != nil {
		return err
	}
	if len(installs) > 0 {
		if err := u.confirm(cmd, cl, installs); err != nil {
			return err
		}
	}
	for _, m := range installs {
		if !u.install {
			break // they are armed
		}
		if _, err := c.Install(cmd.Context(), m.Host, api.CycleLater); err != nil {
			return err
		}
	}
	if cl, err = c.ClusterUp(cmd.Context(), name); err != nil {
		return err
	}
	if u.detach {
		return o.print(cmd, cl, func() error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), clusterText(cl, widthOf(cmd.OutOrStdout())))
			return err
		})
	}
	return watchCluster(cmd, o, c, cl, u.timeout)
}

func findCluster(ctx context.Context, c *api.Client, name string) (api.Cluster, error) {
	found, err := findClusters(ctx, c, []string{name})
	if err != nil {
		return api.Cluster{}, err
	}
	return found[0], nil
}

// findClusters returns the clusters that are named, in that order.
func findClusters(ctx context.Context, c *api.Client, names []string) (found []api.Cluster, err error) {
	cs, err := c.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i := slices.IndexFunc(cs, func(cl api.Cluster) bool { return cl.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no cluster %q in the lab that can be brought up (one of kind plain cannot); bootlab clusters lists them", name)
		}
		found = append(found, cs[i])
	}
	return found, nil
}

// installs returns the machines of a cluster that are installed when they come up, each with the disk that is overwritten: those that the
// daemon would install, or with --install all that can be installed. It says which cannot, and which are not because their state was lost.
func (u upOptions) installs(cmd *cobra.Command, c *api.Client, cl api.Cluster) (all []api.ClusterMachine, err error) {
	hosts, err := c.Hosts(cmd.Context())
	if err != nil {
		return nil, err
	}
	disks := map[string]string{}
	for _, m := range cl.Machines {
		disks[m.Host] = m.Disk
	}
	var lost []string
	for _, h := range hosts {
		switch {
		case u.install:
			disks[h.Name] = h.Disk
		case h.Install == installUnknown && h.Cluster == cl.Name:
			disks[h.Name] = ""
			lost = append(lost, h.Name)
		}
	}
	if len(lost) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "The install states of these machines were lost, so they start from their own disks and are not installed: %s. "+
			"bootlab install HOST --done says that one has a system; bootlab up %s --install installs them and overwrites their disks.\n", strings.Join(lost, ", "), cl.Name)
	}
	var left []string
	for _, m := range cl.Machines {
		if m.Disk = disks[m.Host]; m.Disk != "" {
			all = append(all, m)
		} else {
			left = append(left, m.Host)
		}
	}
	if u.install && len(left) > 0 {
		printNotInstalled(cmd, left)
	}
	return all, nil
}

// confirm says which disks are overwritten, and asks unless --yes was given.
func (u upOptions) confirm(cmd *cobra.Command, cl api.Cluster, installs []api.ClusterMachine) error {
	var disks []string
	for _, m := range installs {
		disks = append(disks, m.Host+" "+m.Disk)
	}
	theirs := "their disks"
	if len(disks) == 1 {
		theirs = "its disk"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This installs %s and overwrites %s: %s.\n", lab.Plural(len(disks), "machine"), theirs, strings.Join(disks, ", "))
	if u.yes {
		return nil
	}
	return confirmYes(cmd, "Bring "+cl.Name+" up?", "installs")
}

// watchCluster shows a cluster until it is ready. An interrupt ends the watching.
func watchCluster(cmd *cobra.Command, o *options, c *api.Client, cl api.Cluster, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	s := clusterScreen{cmd: cmd, o: o, screen: newScreen(cmd.OutOrStdout())}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s.show(cl)
		if cl.Phase == api.ClusterReady && cl.Up.IsZero() {
			return nil
		}
		select {
		case <-ctx.Done():
			return stillUp(cmd.Context(), cl, timeout)
		case <-tick.C:
		}
		next, err := findCluster(ctx, c, cl.Name)
		switch {
		case err == nil:
			cl = next
		case ctx.Err() != nil || errors.Is(err, api.ErrNoDaemon): // it may come back
		default:
			return err
		}
	}
}

// stillUp is why the watching ended before the cluster was ready.
func stillUp(interrupted context.Context, cl api.Cluster, timeout time.Duration) error {
	if interrupted.Err() != nil {
		return fmt.Errorf("%s is not ready (it waits for %s); the daemon continues: bootlab up %s watches again, bootlab down %[1]s ends it", cl.Name, cl.Waits, cl.Name)
	}
	text := fmt.Sprintf("%s is not ready after %s: it waits for %s", cl.Name, timeout, cl.Waits)
	for _, m := range cl.Machines {
		if !m.Stuck && m.Cause == "" {
			continue
		}
		text += "\n  " + m.Host + ": " + lab.Printable(cmp.Or(m.Cause, m.Waits)) + " (bootlab why " + m.Host + ")"
	}
	return errors.New(text)
}

func downCommand(o *options) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "down CLUSTER",
		Short: "Shut the virtual machines of a cluster down, those of the control plane last",
		Args:  cobra.ExactArgs(1),
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) (api.Cluster, error) {
			if _, err := findCluster(cmd.Context(), c, args[0]); err != nil {
				return api.Cluster{}, err
			}
			if !yes {
				if err := confirmYes(cmd, "Shut "+args[0]+" down?", "shuts down"); err != nil {
					return api.Cluster{}, err
				}
			}
			return c.ClusterDown(cmd.Context(), args[0])
		}, func(cmd *cobra.Command, cl api.Cluster) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), clusterText(cl, widthOf(cmd.OutOrStdout())))
			return err
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// A clusterScreen shows a cluster again and again: one table that is drawn over on a terminal, else a line for each change; as JSON, an
// object for each change.
type clusterScreen struct {
	cmd    *cobra.Command
	o      *options
	screen *screen // nil: no terminal
	last   api.Cluster
}

func (s *clusterScreen) show(cl api.Cluster) {
	switch {
	case s.o.json:
		if changed(s.last, cl) {
			_ = s.o.printLine(s.cmd, cl, nil)
		}
	case s.screen != nil:
		s.screen.draw(clusterText(cl, s.screen.width()-1)) // a full line is clipped
	default:
		for _, line := range changes(s.last, cl) {
			fmt.Fprintln(s.cmd.OutOrStdout(), time.Now().Format(time.TimeOnly), line)
		}
	}
	s.last = cl
}

func changed(old, now api.Cluster) bool { return old.Name == "" || len(changes(old, now)) > 0 }

// changes says what changed.
func changes(old, now api.Cluster) (lines []string) {
	if old.Phase != now.Phase {
		lines = append(lines, now.Name+" is "+now.Phase+clusterWaits(now))
	}
	for _, m := range now.Machines {
		i := slices.IndexFunc(old.Machines, func(o api.ClusterMachine) bool { return o.Host == m.Host })
		if i >= 0 && old.Machines[i].Stage == m.Stage && old.Machines[i].Waits == m.Waits && old.Machines[i].Cause == m.Cause {
			continue
		}
		line := m.Host + " is " + m.Stage
		switch {
		case m.Waits != "" && m.Stuck:
			line += ": " + lab.Printable(m.Waits)
		case m.Waits != "":
			line += "; it waits for " + lab.Printable(m.Waits)
		}
		if m.Cause != "" {
			line += "; it stopped: " + lab.Printable(m.Cause)
		}
		lines = append(lines, line)
	}
	return lines
}

// clusterText is a cluster as a table, for a terminal of that width; 0: any.
func clusterText(cl api.Cluster, width int) string {
	var b strings.Builder
	is := "is " + cl.Phase
	if !cl.Since.IsZero() {
		is = "has been " + cl.Phase + " for " + forHow(cl.Since)
	}
	var rows [][]string
	var causes []string
	for _, m := range cl.Machines {
		waits := m.Waits
		switch {
		case m.Stuck:
			waits = "! " + waits
		case m.NeedsUp: // the first line says so
			waits = ""
		}
		rows = append(rows, []string{m.Host, m.Role, m.Stage, forHow(m.Since), waits})
		if m.Cause != "" {
			causes = append(causes, fmt.Sprintf("! %s: %s (bootlab why %[1]s)", m.Host, lab.Printable(m.Cause)))
		}
	}
	lines := [][]string{wrap(fmt.Sprintf("%s (%s) %s%s", cl.Name, cl.Kind, is, clusterWaits(cl)), width)}
	lines = append(lines, layTable([]string{"MACHINE", "ROLE", "STAGE", "FOR", "WAITS FOR"}, rows, width)...)
	if cl.Note != "" {
		causes = append(causes, cl.Note)
	}
	for _, text := range causes {
		lines = append(lines, wrap(text, width))
	}
	_ = writeLines(&b, lines) // a builder takes everything
	return b.String()
}

// clusterWaits says what a cluster waits for, behind what it is.
func clusterWaits(cl api.Cluster) string {
	switch {
	case cl.Waits == "":
		return ""
	case cl.NeedsUp: // all of it, or machines that were never seen
		return "; bootlab up " + cl.Name + " brings it up"
	case len(cl.Machines) == 0:
		return "; " + lab.Printable(cl.Waits)
	}
	return "; it waits for " + lab.Printable(cl.Waits)
}

// forHow says how long something is so.
func forHow(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}
