package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/content/openshift"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
)

func openshiftCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "openshift", Short: "Prepare a lab for an OpenShift installation", Args: subcommand, RunE: help}
	cmd.AddCommand(prepareCommand(o))
	return cmd
}

func prepareCommand(o *options) *cobra.Command {
	p := prepare{o: o}
	cmd := &cobra.Command{
		Use:   "prepare DIR",
		Short: "Check what openshift-install wrote against the lab, and put documents and images in place",
		Long: `Check what openshift-install wrote against the lab, and put documents and images in place.

DIR is the folder that "openshift-install create ignition-configs" wrote, or an install-config.yaml, which is checked alone.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	cmd.Flags().BoolVar(&p.yes, "yes", false, "overwrite other documents without asking")
	cmd.Flags().StringVar(&p.streamFile, "stream", "", "stream metadata of the release's CoreOS (openshift-install coreos print-stream-json); default: stream.json or rhcos.json in DIR")
	cmd.Flags().BoolVar(&p.noImages, "no-images", false, "do not pull images")
	return cmd
}

// A prepare is one run of the command.
type prepare struct {
	o             *options
	yes, noImages bool
	streamFile    string
}

// A prepared is its result as JSON.
type prepared struct {
	Cluster  string            `json:"cluster"`
	Errors   []string          `json:"errors"`
	Warnings []string          `json:"warnings"`
	Certs    *openshift.Expiry `json:"certificates,omitempty"`
	Copies   []documentCopy    `json:"documents"`
	Next     []string          `json:"next"`
	config   bool              // only an install-config.yaml was given
	set      *openshift.Installation
}

// A documentCopy is one document and where profiles look for it.
type documentCopy struct {
	From  string `json:"from"`
	To    string `json:"to"`
	State string `json:"state"` // new, same, other
	text  []byte
}

func (p prepare) run(cmd *cobra.Command, dir string) error {
	set, err := openshift.Read(dir)
	if err != nil {
		return err
	}
	l, err := p.o.load()
	if err != nil {
		return err
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		return err
	}
	v := prepared{Errors: []string{}, Warnings: []string{}, Copies: []documentCopy{}, Next: []string{}, config: set.Config, set: set}
	c, check := set.Check(l, time.Now())
	v.Errors, v.Warnings, v.Certs = append(v.Errors, check.Errors...), append(v.Warnings, check.Warnings...), check.Certs
	if c != nil {
		v.Cluster = c.Name
		v.targets(l, s, c)
		v.stream(l, c, p.streamFile, dir)
	}
	if err := p.put(cmd, &v); err != nil {
		return err
	}
	v.next(p.o.lab, dir)
	if err := p.o.print(cmd, v, func() error { return v.text(cmd) }); err != nil {
		return err
	}
	if n := len(v.Errors); n > 0 {
		return fmt.Errorf("%s does not fit the lab: nothing was copied", dir)
	}
	if set.Config || p.noImages || len(l.Images) == 0 {
		return nil
	}
	if err := pullImages(cmd, p.o, nil, pullParallel); err != nil {
		return fmt.Errorf("the documents are in place, but images are missing: %w; bootlab images pull goes on", err)
	}
	return nil
}

// targets finds where the profiles of the cluster's hosts look for each document.
func (v *prepared) targets(l *lab.Lab, s *snapshot.Snapshot, c *lab.Cluster) {
	roles := map[string]string{lab.RoleBootstrap: "bootstrap.ign", lab.RoleControlPlane: "master.ign", lab.RoleWorker: "worker.ign"}
	seen := map[string]string{}
	for _, h := range c.Hosts {
		name := roles[h.Role]
		text, have := v.set.Documents[name]
		if name == "" || v.config {
			continue
		}
		file, err := s.Boot.ConfigFile(h)
		switch {
		case err != nil:
			v.Errors = append(v.Errors, fmt.Sprintf("host %s: %v", h.Name, err))
		case file == "":
			v.Errors = append(v.Errors, fmt.Sprintf("host %s has no config document: want profile with config: ignition/{{.Host.Role}}.ign", h.Name))
		case !have:
			v.Errors = append(v.Errors, fmt.Sprintf("%s is missing in the folder, and host %s needs it", name, h.Name))
		case seen[file] != "" && seen[file] != name:
			v.Errors = append(v.Errors, fmt.Sprintf("host %s reads %s, where %s belongs too: want {{.Host.Role}} in the profile's config", h.Name, file, seen[file]))
		case seen[file] == "":
			v.Copies = append(v.Copies, documentCopy{From: name, To: filepath.Join(l.Appliance.Files, filepath.FromSlash(file)), text: openshift.AsTemplate(text)})
		}
		seen[file] = name
	}
}

// put writes the documents, after asking where others are there.
func (p prepare) put(cmd *cobra.Command, v *prepared) error {
	var others []string
	for i := range v.Copies {
		c := &v.Copies[i]
		have, err := os.ReadFile(c.To)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c.State = "new"
		case err != nil:
			return err
		case bytes.Equal(have, c.text):
			c.State = "same"
		default:
			c.State = "other"
			others = append(others, c.To)
		}
	}
	if len(v.Errors) > 0 {
		return nil
	}
	if len(others) > 0 && !p.yes {
		fmt.Fprintf(cmd.ErrOrStderr(), "other documents are in place: %s\n", strings.Join(others, ", "))
		if err := confirmYes(cmd, "Overwrite them?", "overwrites them"); err != nil {
			return err
		}
	}
	for _, c := range v.Copies {
		if c.State == "same" {
			continue
		}
		if err := writeDocument(c.To, c.text); err != nil {
			return fmt.Errorf("put %s in place: %w", c.From, err)
		}
	}
	return nil
}

// writeDocument writes a file that only its owner reads, whole or not at all. As root it belongs to the owner of its folder, which the
// daemon can read as.
func writeDocument(name string, text []byte) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replaceFile(name, func(f *os.File) error {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
				return err
			}
		}
		_, err = f.Write(text)
		return err
	})
}

// next lists the commands that follow.
func (v *prepared) next(labFile, dir string) {
	at := ""
	if labFile != defaultLab {
		at = " --lab " + labFile
	}
	switch {
	case len(v.Errors) > 0:
	case v.config:
		v.Next = []string{
			"openshift-install create ignition-configs --dir DIR   # with install-config.yaml in DIR; keep a copy, it is consumed",
			"bootlab openshift prepare DIR" + at,
		}
	default:
		v.Next = []string{
			"bootlab check --strict" + at, "bootlab reload" + at, "bootlab up " + v.Cluster + at,
			"openshift-install wait-for bootstrap-complete --dir " + dir,
		}
	}
}

func (v *prepared) text(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	for _, e := range v.Errors {
		fmt.Fprintln(cmd.ErrOrStderr(), e)
	}
	for _, w := range v.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	if len(v.Errors) > 0 {
		return nil
	}
	if v.config {
		fmt.Fprintf(out, "%s fits cluster %s of the lab\n", openshift.ConfigName, v.Cluster)
	}
	if v.Certs != nil {
		fmt.Fprintf(out, "the certificates in bootstrap.ign are valid until %s, for %s\n", v.Certs.Until.Local().Format("2006-01-02 15:04"), v.Certs.Left.Round(time.Minute))
	}
	states := map[string]string{"new": "put in place", "other": "replaced", "same": "in place already"}
	for _, c := range v.Copies {
		fmt.Fprintf(out, "%s: %s %s\n", c.From, states[c.State], c.To)
	}
	if len(v.Next) > 0 {
		fmt.Fprintln(out, "next:")
	}
	for _, n := range v.Next {
		fmt.Fprintln(out, "  "+n)
	}
	return nil
}
