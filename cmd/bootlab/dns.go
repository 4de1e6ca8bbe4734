package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

func resolveCommand(o *options) *cobra.Command {
	var q api.DNSQuestion
	cmd := &cobra.Command{
		Use:   "resolve NAME|ADDR [TYPE]",
		Short: "Answer a DNS question, and show which zone, lease, rule or upstream server made the answer",
		Args:  cobra.RangeArgs(1, 2),
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) (api.DNSAnswer, error) {
			q.Name, q.Type = args[0], strings.Join(args[1:], "")
			return c.Resolve(cmd.Context(), q)
		}, resolveText),
	}
	cmd.Flags().StringVar(&q.As, "as", "", "answer as for this `client`: a host or an address (default: the appliance itself)")
	cmd.Flags().BoolVar(&q.DO, "dnssec", false, "with DNSSEC records")
	return cmd
}

func resolveText(cmd *cobra.Command, a api.DNSAnswer) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s for %s: %s\n", a.Question, a.Client, strings.Join(append([]string{a.Code}, a.Flags...), " "))
	for _, rr := range a.Records {
		fmt.Fprintln(w, " ", lab.Printable(rr))
	}
	if len(a.Steps) > 0 {
		fmt.Fprintln(w, "because")
	}
	for _, s := range a.Steps {
		text := lab.Printable(s.Text)
		if !strings.HasPrefix(text, s.By+" ") { // as "zone lab.example." does
			text = s.By + ": " + text
		}
		if _, err := fmt.Fprintf(w, "  %s: %s\n", s.Name, text); err != nil {
			return err
		}
	}
	return nil
}

func dnsCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Flush the DNS cache, follow the queries of a host, list dynamic updates",
		Args:  subcommand,
		RunE:  help,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "flush [NAME]",
			Short: "Remove a name and those below it, or everything, from the forwarder's cache",
			Args:  cobra.MaximumNArgs(1),
			RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) (api.DNSFlush, error) {
				return c.FlushDNS(cmd.Context(), strings.Join(args, ""))
			}, func(cmd *cobra.Command, f api.DNSFlush) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "answers removed from the cache: %d\n", f.Removed)
				return err
			}),
		},
		updatesCommand(o),
		&cobra.Command{
			Use:   "log HOST|ADDR",
			Short: "Show the DNS queries of a client from now on",
			Args:  cobra.ExactArgs(1),
			RunE:  func(cmd *cobra.Command, args []string) error { return followDNS(cmd, o, args[0]) },
		},
	)
	return cmd
}

func updatesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "updates",
		Short: "List what dynamic updates (RFC 2136) have put into zones, or delete it",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.DNSUpdate, error) {
			return c.DNSUpdates(cmd.Context())
		}, updatesText),
	}
	var yes bool
	remove := &cobra.Command{
		Use:   "delete NAME [TYPE]",
		Short: "Delete the records that dynamic updates made at a name",
		Args:  cobra.RangeArgs(1, 2),
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, args []string) (api.DNSUpdatesDeleted, error) {
			name, rtype := args[0], strings.Join(args[1:], "")
			if !yes {
				if err := confirmUpdates(cmd, o, c, name, rtype); err != nil {
					return api.DNSUpdatesDeleted{}, err
				}
			}
			deleted, err := c.DeleteDNSUpdate(cmd.Context(), name, rtype)
			if errors.Is(err, api.ErrNoDaemon) && o.server == "" {
				return deleteStoredUpdates(cmd.Context(), o, name, rtype)
			}
			return deleted, err
		}, func(cmd *cobra.Command, d api.DNSUpdatesDeleted) error {
			text := fmt.Sprintf("RRsets deleted: %d", d.Deleted)
			if d.Kept != "" {
				text += "; the state before is kept as " + d.Kept
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		}),
	}
	remove.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.AddCommand(remove)
	return cmd
}

// confirmUpdates shows the records of dynamic updates that would be deleted, and asks. A daemon that does not run shows none.
func confirmUpdates(cmd *cobra.Command, o *options, c *api.Client, name, rtype string) error {
	all, err := c.DNSUpdates(cmd.Context())
	if err != nil && (!errors.Is(err, api.ErrNoDaemon) || o.server != "") {
		return err
	}
	for _, u := range all {
		if !u.OfName(name, rtype) {
			continue
		}
		for _, rr := range u.Records {
			fmt.Fprintln(cmd.ErrOrStderr(), lab.Printable(rr))
		}
	}
	what := name
	if rtype != "" {
		what += " " + strings.ToUpper(rtype)
	}
	return confirmYes(cmd, "Delete what dynamic updates made at "+what+"?", "deletes")
}

// deleteStoredUpdates deletes from the state of a daemon that does not run.
func deleteStoredUpdates(ctx context.Context, o *options, name, rtype string) (api.DNSUpdatesDeleted, error) {
	l, err := load.Lab(o.lab, load.Options{InterfaceAddr: interfaces.AddrIn})
	if err != nil {
		return api.DNSUpdatesDeleted{}, o.whichLab(err)
	}
	state, err := statefile.Hold(l.Appliance)
	if err != nil {
		return api.DNSUpdatesDeleted{}, err
	}
	defer state.Close()
	return state.DeleteDNSUpdates(ctx, name, rtype)
}

func updatesText(cmd *cobra.Command, all []api.DNSUpdate) error {
	w := cmd.OutOrStdout()
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no dynamic updates")
		return err
	}
	for _, u := range all {
		hidden := ""
		if !u.Served {
			hidden = ", not served: the lab file has precedence"
		}
		for _, rr := range u.Records {
			if _, err := fmt.Fprintf(w, "%s\t; key %s, %s%s\n", lab.Printable(rr), lab.Printable(u.Key), localTime(u.At), hidden); err != nil {
				return err
			}
		}
	}
	return nil
}

// followDNS prints the queries of a client until it is interrupted.
func followDNS(cmd *cobra.Command, o *options, client string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	err = c.FollowDNS(cmd.Context(), client, func(q api.DNSQuery) error {
		return o.printLine(cmd, q, func() error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s %s, %s, records %d\n", q.At.Local().Format(time.TimeOnly), q.Client,
				lab.Printable(q.Question), q.Code, q.Source, q.Records)
			return err
		})
	})
	switch {
	case cmd.Context().Err() != nil:
		return nil
	case err == nil:
		return errors.New("the daemon ended the log: it has stopped, or more queries came than could be read")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the daemon has stopped")
	}
	return err
}
