package main

import (
	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/content/clusterconfig"
	"github.com/bootlab/bootlab/internal/lab"
)

func openshiftCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "openshift", Short: "Prepare a lab for an OpenShift installation", Args: subcommand, RunE: help}
	cmd.AddCommand(openshiftPrepare(o))
	return cmd
}

func openshiftPrepare(o *options) *cobra.Command {
	p := prepare{o: o}
	var streamFile string
	cmd := &cobra.Command{
		Use:   "prepare DIR",
		Short: "Check what openshift-install wrote against the lab, and put documents and images in place",
		Long: `Check what openshift-install wrote against the lab, and put documents and images in place.

DIR is the folder that "openshift-install create ignition-configs" wrote, or an install-config.yaml, which is checked alone.` + preparesHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := clusterconfig.ReadOpenShift(args[0])
			if err != nil {
				return err
			}
			p.dir = args[0]
			p.also = func(l *lab.Lab, c *lab.Cluster, v *prepared) {
				if set.ConfigOnly {
					v.fits, v.compared, p.noImages = clusterconfig.ConfigName, set.Compared(), true
				} else {
					p.stream(v, l, c, streamFile)
				}
			}
			p.next = func(v *prepared, at string) []string { return openshiftNext(set, v, at, p.dir) }
			return p.run(cmd, set)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&streamFile, "stream", "", "stream metadata of the release's CoreOS (openshift-install coreos print-stream-json); default: stream.json or rhcos.json in DIR")
	return cmd
}

// openshiftNext lists the commands that follow.
func openshiftNext(set *clusterconfig.OpenShift, v *prepared, at, dir string) []string {
	if set.ConfigOnly {
		return []string{
			"openshift-install create ignition-configs --dir DIR   # with install-config.yaml in DIR; keep a copy, it is consumed",
			"bootlab openshift prepare DIR" + at,
		}
	}
	return append(v.bringUp(at), "openshift-install wait-for bootstrap-complete --dir "+dir)
}
