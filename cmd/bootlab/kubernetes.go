package main

import (
	"bytes"
	"path"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/content/clusterconfig"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

func kubernetesCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "kubernetes", Short: "Prepare a lab for a cluster of kubeadm", Args: subcommand, RunE: help}
	cmd.AddCommand(kubernetesPrepare(o))
	return cmd
}

func kubernetesPrepare(o *options) *cobra.Command {
	p := prepare{o: o}
	cmd := &cobra.Command{
		Use:   "prepare DIR|FILE",
		Short: "Check configuration of kubeadm against the lab, and put documents and images in place",
		Long: `Check configuration of kubeadm (InitConfiguration, ClusterConfiguration, JoinConfiguration) against the lab, and put documents and images
in place.

A file belongs where a profile names one of that name, in config or documents. A folder has to have those of all hosts; one file is compared
and put in place alone.` + preparesHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := clusterconfig.ReadKubeadm(args[0])
			if err != nil {
				return err
			}
			p.dir = args[0]
			p.also = func(l *lab.Lab, c *lab.Cluster, v *prepared) { v.kubeadmFiles(l, c, set, args[0]) }
			p.next = func(v *prepared, at string) []string { return kubernetesNext(set, v, at) }
			return p.run(cmd, set)
		},
	}
	p.flags(cmd)
	return cmd
}

// kubeadmFiles reports documents that no host gets, and hosts that get one but no container runtime to run it with.
func (v *prepared) kubeadmFiles(l *lab.Lab, c *lab.Cluster, set *clusterconfig.Kubeadm, from string) {
	if len(v.Copies) == 0 {
		v.fits = from
		return // admins copy them by hand
	}
	for _, name := range set.Files() {
		if !slices.ContainsFunc(v.Copies, func(d documentCopy) bool { return d.From == name }) {
			v.warn("%s belongs nowhere: no profile of the hosts of cluster %s names it; want documents: [kubeadm/%[1]s]", name, c.Name)
		}
	}
	warned := map[string]bool{}
	for _, h := range c.Hosts {
		paths, err := v.files(h)
		if err != nil || len(paths) < 2 || paths[0] == "" || warned[paths[0]] {
			continue
		}
		for _, document := range paths[1:] {
			runtime := set.Runtime(path.Base(document))
			text, err := regular.Read(filepath.Join(l.Appliance.Files, filepath.FromSlash(paths[0])), regular.Small)
			if runtime != "" && err == nil && !bytes.Contains(text, []byte(runtime)) {
				warned[paths[0]] = true
				v.warn("%s, which installs %s, does not mention %s, whose socket %s names", paths[0], h.Name, runtime, path.Base(document))
			}
		}
	}
}

// kubernetesNext lists the commands that follow.
func kubernetesNext(set *clusterconfig.Kubeadm, v *prepared, at string) []string {
	next := v.bringUp(at)
	file, addr := set.Init()
	on := "the first control-plane machine"
	for _, h := range v.cluster.Hosts {
		if h.Role == lab.RoleControlPlane && (!addr.IsValid() || h.IP == addr) {
			on = h.Name
			break
		}
	}
	if file == "" {
		return next
	}
	return append(next, "kubeadm init --config "+file+" --upload-certs   # on "+on, "bootlab clusters"+at)
}
