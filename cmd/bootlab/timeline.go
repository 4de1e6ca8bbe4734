package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bootlab/internal/api"
	"bootlab/internal/event"
)

func timelineCommand(o *options) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "timeline HOST", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens from now on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := o.client()
		if err != nil {
			return err
		}
		if follow {
			return c.Follow(cmd.Context(), args[0], func(e event.Event) error { fmt.Println(e.Kind, e.Detail, e.Err); return nil })
		}
		return ask(o, func(cmd *cobra.Command, c *api.Client, args []string) ([]api.Boot, error) {
			return c.Boots(cmd.Context(), args[0])
		}, func(cmd *cobra.Command, b []api.Boot) error {
			for _, x := range b {
				for _, e := range x.Events {
					fmt.Println(e.At, e.Kind, e.Detail, e.Err)
				}
			}
			return nil
		})(cmd, args)
	}
	return cmd
}
