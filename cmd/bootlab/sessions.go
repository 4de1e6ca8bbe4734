package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/api"
)

func sessionsCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the logins of the dashboard, or end them",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) ([]api.Session, error) {
			return c.Sessions(cmd.Context())
		}, sessionsText),
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "revoke",
		Short: "End all logins of the dashboard",
		Args:  cobra.NoArgs,
		RunE: ask(o, func(cmd *cobra.Command, c *api.Client, _ []string) (api.Revoked, error) {
			return c.RevokeSessions(cmd.Context())
		}, func(cmd *cobra.Command, r api.Revoked) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sessions ended: %d\n", r.Sessions)
			return err
		}),
	})
	return cmd
}

func sessionsText(cmd *cobra.Command, sessions []api.Session) error {
	if len(sessions) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "no sessions")
		return err
	}
	var rows [][]string
	for _, s := range sessions {
		rows = append(rows, []string{s.From.String(), localTime(s.Since), localTime(s.Used)})
	}
	return writeTable(cmd.OutOrStdout(), []string{"FROM", "SINCE", "LAST REQUEST"}, rows)
}
