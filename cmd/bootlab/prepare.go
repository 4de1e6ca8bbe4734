package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bootlab/bootlab/internal/content/clusterconfig"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/file/replace"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// preparesHelp is what all prepare commands do, for their help.
const preparesHelp = `

What does not fit is an error, and nothing is copied. Otherwise documents go where the profiles of the cluster's hosts look for them, the
images of the lab are pulled, and the commands that follow are printed.`

// A prepare is one run of a prepare command: it checks what an installer wrote against the lab, and puts it in place.
type prepare struct {
	o             *options
	yes, noImages bool
	dir           string
	// also looks at what only this installer has, once the cluster is known, and says what is next.
	also func(l *lab.Lab, c *lab.Cluster, v *prepared)
	// next says which commands follow; at is how they name the lab file.
	next func(v *prepared, at string) []string
}

// flags are those of all prepare commands.
func (p *prepare) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.yes, "yes", false, "overwrite other documents without asking")
	cmd.Flags().BoolVar(&p.noImages, "no-images", false, "do not pull images")
}

// A prepared is its result as JSON.
type prepared struct {
	Cluster  string                   `json:"cluster"`
	Errors   []string                 `json:"errors"`
	Warnings []string                 `json:"warnings"`
	Certs    *clusterconfig.Expiry    `json:"certificates,omitempty"`
	Talos    string                   `json:"talos_version,omitempty"`
	Boot     []clusterconfig.BootFile `json:"boot_files,omitempty"`
	Copies   []documentCopy           `json:"documents"`
	Next     []string                 `json:"next"`

	cluster   *lab.Cluster // nil: the lab has none that the files are for
	problems  lab.Problems // Errors
	cautions  lab.Problems // Warnings
	fits      string       // what was compared, where nothing is copied
	compared  string       // the keys, for people; empty: not listed
	files     clusterconfig.Files
	pullFirst string // the command without which images cannot be pulled; empty: none
}

// A documentCopy is one document and where profiles look for it.
type documentCopy struct {
	From  string `json:"from"`
	To    string `json:"to"`
	State string `json:"state"` // new, same, other
	text  []byte
}

func (v *prepared) fail(format string, args ...any) { v.problems.Addf(lab.Pos{}, "", format, args...) }
func (v *prepared) warn(format string, args ...any) { v.cautions.Addf(lab.Pos{}, "", format, args...) }

func (p *prepare) run(cmd *cobra.Command, set clusterconfig.Set) error {
	l, err := p.o.load()
	if err != nil {
		return err
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		return err
	}
	v := prepared{Copies: []documentCopy{}, Next: []string{}, files: s.Boot.DocumentFiles}
	c, report := set.Check(l, time.Now())
	v.problems, v.cautions, v.Certs = report.Errors, report.Warnings, report.Certs
	if c != nil {
		v.Cluster, v.cluster = c.Name, c
		copies, wrong := set.Place(c, v.files)
		v.problems = append(v.problems, wrong...)
		for _, d := range copies {
			v.Copies = append(v.Copies, documentCopy{From: d.From, To: filepath.Join(l.Appliance.Files, filepath.FromSlash(d.To)), text: d.Text})
		}
		p.also(l, c, &v)
	}
	if err := p.put(cmd, &v); err != nil {
		return err
	}
	v.problems.Sort()
	v.Errors, v.Warnings = lines(v.problems), lines(v.cautions)
	if !p.o.json {
		v.text(cmd)
	}
	if len(v.problems) > 0 {
		return errors.Join(p.o.print(cmd, v, func() error { return nil }), fmt.Errorf("%s does not fit the lab: nothing was copied", p.dir))
	}
	at := ""
	if p.o.lab != daemon.DefaultLab {
		at = " --lab " + p.o.lab
	}
	v.Next = p.next(&v, at)
	if !p.noImages && len(l.Images) > 0 {
		if err = pullImages(cmd, p.o, nil, pullParallel); err != nil {
			err = fmt.Errorf("the documents are in place, but images are missing: %w", err)
			v.Next = []string{cmp.Or(v.pullFirst, "bootlab images pull"+at), cmd.CommandPath() + " " + p.dir + at + "   # says what is next then"}
		}
	}
	return errors.Join(p.o.print(cmd, v, func() error { return v.nextText(cmd) }), err)
}

// bringUp lists the commands that bring up a cluster whose documents are in place; at is how they name the lab file.
func (v *prepared) bringUp(at string) []string {
	return []string{"bootlab check --strict" + at, "bootlab reload" + at, "bootlab up " + v.Cluster + at}
}

func lines(problems lab.Problems) []string {
	all := []string{}
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

// put writes the documents, after asking where others are there.
func (p *prepare) put(cmd *cobra.Command, v *prepared) error {
	var others []string
	for i := range v.Copies {
		c := &v.Copies[i]
		have, err := regular.Read(c.To, max(int64(len(c.text)), regular.Small))
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
	if len(v.problems) > 0 {
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
	return replace.File(name, 0o600, func(f *os.File) error {
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

// leftText writes a time that is left: of a few days in hours and minutes.
func leftText(left time.Duration) string {
	const day = 24 * time.Hour
	if left > 3*day {
		return fmt.Sprintf("%d days", left/day)
	}
	return left.Round(time.Minute).String()
}

// text says what was found, and what is in place.
func (v *prepared) text(cmd *cobra.Command) {
	out := cmd.OutOrStdout()
	for _, kind := range []struct {
		prefix   string
		problems lab.Problems
	}{{"", v.problems}, {"warning: ", v.cautions}} {
		load.Quote(kind.problems)
		for _, p := range kind.problems {
			fmt.Fprint(cmd.ErrOrStderr(), kind.prefix, p.Detail())
		}
	}
	if len(v.problems) > 0 {
		return
	}
	if v.fits != "" {
		fmt.Fprintf(out, "%s fits cluster %s of the lab\n", v.fits, v.Cluster)
	}
	if v.compared != "" {
		fmt.Fprintf(out, "compared: %s\n", v.compared)
	}
	if v.Certs != nil {
		fmt.Fprintf(out, "the certificates in %s are valid until %s, for %s\n", v.Certs.File, v.Certs.Until.Local().Format("2006-01-02 15:04"), leftText(v.Certs.Left))
	}
	if v.Talos != "" {
		fmt.Fprintf(out, "Talos %s boots %s and %s\n", v.Talos, v.Boot[0].URL, v.Boot[1].URL)
	}
	states := map[string]string{"new": "put in place", "other": "replaced", "same": "in place already"}
	for _, c := range v.Copies {
		fmt.Fprintf(out, "%s: %s %s\n", c.From, states[c.State], c.To)
	}
}

// nextText lists the commands that follow.
func (v *prepared) nextText(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	if len(v.Next) > 0 {
		fmt.Fprintln(out, "next:")
	}
	for _, n := range v.Next {
		fmt.Fprintln(out, "  "+n)
	}
	return nil
}
