package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/content/clusterconfig"
	"github.com/bootlab/bootlab/internal/lab"
)

func talosCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "talos", Short: "Prepare a lab for a cluster of Talos Linux", Args: subcommand, RunE: help}
	cmd.AddCommand(talosPrepare(o))
	return cmd
}

func talosPrepare(o *options) *cobra.Command {
	p := prepare{o: o}
	cmd := &cobra.Command{
		Use:   "prepare DIR",
		Short: "Check what talosctl gen config wrote against the lab, and put documents and images in place",
		Long: `Check what talosctl gen config wrote against the lab, and put documents and images in place.

DIR has controlplane.yaml, worker.yaml and talosconfig. HOST.yaml beside them is the machine configuration of that host alone;
if other hosts have its role, the profile needs {{.Host.Name}} in config.` + preparesHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := clusterconfig.ReadTalos(args[0])
			if err != nil {
				return err
			}
			p.dir = args[0]
			p.also = func(l *lab.Lab, c *lab.Cluster, v *prepared) { v.talosFiles(l, c, set) }
			p.next = func(v *prepared, at string) []string { return talosNext(set, v, at) }
			return p.run(cmd, set)
		},
	}
	p.flags(cmd)
	return cmd
}

// talosFiles compares the kernels and initramfs files that the cluster's hosts boot with the version of Talos that they install.
func (v *prepared) talosFiles(l *lab.Lab, c *lab.Cluster, set *clusterconfig.Talos) {
	v.Talos, v.Boot = set.BootFiles(talosArch(c))
	if v.Talos == "" {
		return
	}
	pulled := imagesOf(l, c)
	for _, i := range pulled {
		for _, from := range i.URLs {
			if version := clusterconfig.Version(from); version != "" && version != v.Talos {
				v.problems.Addf(i.Pos, "images."+i.Path, "is of Talos %s, and the documents install %s: want %s", version, v.Talos, v.bootURL(from))
			}
		}
	}
	for _, h := range c.Hosts {
		if h.Profile == nil || !h.Profile.NetBoots() {
			continue
		}
		for _, path := range append([]string{h.Profile.Kernel}, h.Profile.Initrd...) {
			named := slices.ContainsFunc(pulled, func(i *lab.Image) bool { return i.Path == path })
			if path != "" && !named && !strings.Contains(path, "{{") && !exists(filepath.Join(l.Appliance.Files, filepath.FromSlash(path))) {
				v.warn("%s of profile %s is missing: want images: {%[1]s: {url: %[3]q, sha256: …}}, and bootlab images pull", path, h.Profile.Name, v.bootURL(path))
			}
		}
		return // those of one profile are enough to read
	}
}

// bootURL returns where the file is that is meant: the kernel or the initramfs.
func (v *prepared) bootURL(like string) string {
	if strings.Contains(filepath.Base(like), "initr") {
		return v.Boot[1].URL
	}
	return v.Boot[0].URL
}

// talosArch returns the architecture of a cluster's machines in the words of Talos.
func talosArch(c *lab.Cluster) string {
	if slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.VM != nil && h.VM.Arch == lab.ArchARM64 }) {
		return "arm64"
	}
	return "amd64"
}

// talosNext lists the commands that follow.
func talosNext(set *clusterconfig.Talos, v *prepared, at string) []string {
	next := v.bringUp(at)
	client := set.ClientFile()
	var masters []string
	for _, h := range v.cluster.Hosts {
		if h.Role == lab.RoleControlPlane && h.IP.IsValid() {
			masters = append(masters, h.IP.String())
		}
	}
	if client == "" || len(masters) == 0 {
		return next
	}
	t := "talosctl --talosconfig " + client
	return append(next,
		fmt.Sprintf("%s config endpoint %s", t, strings.Join(masters, " ")),
		fmt.Sprintf("%s -n %s bootstrap   # once, when the control plane is installed", t, masters[0]),
		fmt.Sprintf("%s -n %s kubeconfig", t, masters[0]))
}
