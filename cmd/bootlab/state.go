package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func stateCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Show the condition of the state folder, accept it after a loss",
		Args:  subcommand,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.State, error) {
			s, err := c.State(cmd.Context())
			if errors.Is(err, api.ErrNoDaemon) && o.server == "" {
				err = fmt.Errorf("%w; bootlab doctor says whether the state is lost", err)
			}
			return s, err
		}, stateText),
	}
	var yes bool
	accept := &cobra.Command{
		Use:   "accept-new",
		Short: "Accept the state after a loss: hosts whose install state is unknown are armed",
		Long: `Accept the state after a loss: it lists the hosts that would install themselves, and asks. Hosts whose install state is unknown are armed.
After a first start or a reload it changes no host, so it does not ask: it ends the warning that names the hosts that install themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return acceptState(cmd, o, yes) },
	}
	accept.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.AddCommand(accept)
	return cmd
}

// acceptState shows which machines would install themselves, asks, and accepts the state.
func acceptState(cmd *cobra.Command, o *options, yes bool) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	s, err := c.State(cmd.Context())
	if err != nil {
		return err
	}
	if s.Condition == api.StateLost && !yes {
		if err := confirmAccept(cmd, s); err != nil {
			return err
		}
	}
	if s, err = c.AcceptState(cmd.Context(), s.Database); err != nil {
		return err
	}
	return o.print(cmd, s, func() error {
		fmt.Fprintln(cmd.OutOrStdout(), "The state is accepted.")
		installText(cmd.OutOrStdout(), "install themselves at their next network boot", s)
		return nil
	})
}

// confirmAccept asks on the terminal. Standard output stays free for the answer.
func confirmAccept(cmd *cobra.Command, s api.State) error {
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "Install states were lost, noticed %s: %s.\n", localTime(s.Since), s.Reason)
	installText(w, "would install themselves at their next network boot, which overwrites their disks", s)
	fmt.Fprintln(w, "For those that have a system, run bootlab install HOST --done first.")
	return confirmYes(cmd, "Accept the state?", "accepts this list")
}

func stateText(cmd *cobra.Command, s api.State) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "state folder %s, database %s\n", s.Folder, s.Database)
	switch s.Condition {
	case api.StateLost:
		fmt.Fprintf(w, "install states were lost, noticed %s: %s\n", localTime(s.Since), s.Reason)
		fmt.Fprintln(w, "no machine with install: once is installed until an admin says so")
		fmt.Fprintln(w, s.Advice)
		fmt.Fprintf(w, "install state unknown, %d: %s\n", len(s.Unknown), cmp.Or(strings.Join(s.Unknown, ", "), "none"))
		armed, accepted := s, s
		armed.Install, armed.Pools = slices.DeleteFunc(slices.Clone(s.Install), isIn(s.Unknown)), nil
		if len(armed.Install) > 0 {
			installText(w, "install themselves at their next network boot", armed)
		}
		accepted.Install = slices.DeleteFunc(slices.Clone(s.Install), isIn(armed.Install))
		installText(w, "would install themselves at their next network boot after bootlab state accept-new", accepted)
	case api.StateFirst:
		fmt.Fprintln(w, "this is the first start of the lab")
		installText(w, "install themselves at their next network boot", s)
	default:
		installText(w, "install themselves at their next network boot", s)
	}
	if len(s.Held) > 0 {
		fmt.Fprintf(w, "held by a restore, %d: %s; they start from their own disks until an admin says so: bootlab install HOST, or bootlab install HOST --done for one that is installed\n",
			len(s.Held), strings.Join(s.Held, ", "))
	}
	if len(s.LoopHeld) > 0 {
		fmt.Fprintf(w, "held after too many attempts to install, %d: %s; they start from their own disks until an admin says so: fix the profile, then "+
			"bootlab install HOST, or bootlab install HOST --done for one that is installed\n",
			len(s.LoopHeld), strings.Join(s.LoopHeld, ", "))
	}
	if s.Problem != "" {
		fmt.Fprintln(w, "warning:", s.Problem)
	}
	var rows [][]string
	for _, m := range s.Markers {
		rows = append(rows, []string{m.Path, cmp.Or(m.Err, "ok")})
	}
	fmt.Fprintln(w)
	return table(cmd, "MARKER STATE", rows)
}

func isIn(names []string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

// installText lists what would install itself, or says that nothing would.
func installText(w io.Writer, how string, s api.State) {
	names := slices.Clone(s.Install)
	for _, p := range s.Pools {
		names = append(names, "machines of pool "+p)
	}
	if len(names) == 0 {
		fmt.Fprintf(w, "No machines %s.\n", how)
		return
	}
	who := lab.Plural(len(s.Install), "machine")
	switch len(s.Install) {
	case 0:
		who = "Machines of " + lab.Plural(len(s.Pools), "pool")
	case 1:
		if len(s.Pools) == 0 {
			how = ofOne(how)
		}
	}
	fmt.Fprintf(w, "%s %s: %s\n", who, how, strings.Join(names, ", "))
}

// ofOne says of one machine what how says of several.
func ofOne(how string) string {
	how = strings.NewReplacer("themselves", "itself", "their disks", "its disk", "their", "its").Replace(how)
	if rest, ok := strings.CutPrefix(how, "install "); ok {
		return "installs " + rest
	}
	return how
}
