package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

func timelineCommand(o *options) *cobra.Command {
	var follow, all bool
	cmd := &cobra.Command{
		Use:   "timeline HOST",
		Short: "Show the last boot of a host (name, FQDN, MAC or address), or of an unknown machine (MAC or address)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow {
				return followTimeline(cmd, o, args[0])
			}
			return showTimeline(o, all)(cmd, args)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new events until interrupted")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show all recorded boots")
	return cmd
}

func showTimeline(o *options, all bool) func(*cobra.Command, []string) error {
	return ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Boot, error) {
		boots, err := c.Boots(cmd.Context(), args[0])
		if !all && len(boots) > 1 {
			boots = boots[len(boots)-1:]
		}
		return boots, err
	}, func(cmd *cobra.Command, boots []api.Boot) error {
		if err := bootsText(cmd, boots); err != nil {
			return err
		}
		return unknownNote(cmd, o, cmd.Flags().Arg(0))
	})
}

// unknownNote says since when the install state of a host is unknown, and what to do, if it is.
func unknownNote(cmd *cobra.Command, o *options, name string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	s, err := c.State(cmd.Context())
	if err != nil || len(s.Unknown) == 0 {
		return err
	}
	hosts, err := c.Hosts(cmd.Context())
	if err != nil {
		return err
	}
	hosts, err = hostsNamed(hosts, []string{name})
	if err != nil { // a machine that is not in the lab
		return nil
	}
	for _, h := range hosts {
		if !h.Unknown.IsZero() {
			fmt.Fprintln(cmd.OutOrStdout(), lab.Printable(h.Note))
		}
	}
	return nil
}

func bootsText(cmd *cobra.Command, boots []api.Boot) error {
	if len(boots) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "no boot recorded")
		return err
	}
	for i, b := range boots {
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if err := timeline.Format(cmd.OutOrStdout(), timeline.Boot(b), formatOptions()); err != nil {
			return err
		}
	}
	return nil
}

// followTimeline shows the boot under way, then every event as it comes. An interrupt is the way out, no error.
func followTimeline(cmd *cobra.Command, o *options, host string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	if !o.json {
		if err := showTimeline(o, false)(cmd, []string{host}); err != nil {
			return err
		}
	}
	err = c.Follow(cmd.Context(), host, func(e event.Event) error {
		return o.printLine(cmd, e, func() error { return timeline.FormatEvent(cmd.OutOrStdout(), e, formatOptions()) })
	})
	switch {
	case cmd.Context().Err() != nil:
		return nil
	case err == nil:
		return errors.New("the daemon stopped or closed the connection")
	}
	return err
}

// formatOptions colours what goes to a terminal whose user did not ask for none.
func formatOptions() timeline.Options {
	o := timeline.Options{Location: time.Local}
	if term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" {
		o.Style = timeline.Coloured
	}
	return o
}
