package configs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/golden"
	"github.com/bootlab/bootlab/test/support/netns"
)

var update = flag.Bool("update", false, "rewrite golden files and the table of docs/os")

const osDocs = "../../docs/os"

// osLab stands around the example of a page.
const osLab = `version: 1
domain: lab.example
networks: {baremetal: {subnet: 192.168.16.0/24, interface: br0, address: 192.168.16.1}}
`

// A page is one of docs/os: its example and the documents of it.
type page struct {
	name, title, example string
	files                map[string]string // by path below files/
}

// readPage takes a page apart: its first YAML that begins with profiles is the example; a block below a line that begins with
// a path below files/ is that file.
func readPage(t *testing.T, file string) page {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := page{name: strings.TrimSuffix(filepath.Base(file), ".md"), files: map[string]string{}}
	p.title, _, _ = strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	for i, block := range strings.Split(string(text), "\n```") {
		before, body, _ := strings.Cut(block, "\n")
		switch {
		case i%2 == 0: // prose, up to the next block
			continue
		case strings.HasPrefix(body, "profiles:"):
			p.example = body + "\n"
		case before != "":
		}
		if name := fileAbove(string(text), block); name != "" {
			p.files[name] = body + "\n"
		}
	}
	if p.title == "" || p.example == "" {
		t.Fatalf("%s has no title or no example", file)
	}
	return p
}

// fileAbove returns the path that the paragraph above a block begins with, if it is one below files/.
func fileAbove(text, block string) string {
	above := text[:strings.Index(text, "\n```"+block)]
	paragraph := above[strings.LastIndex(strings.TrimRight(above, "\n"), "\n\n")+1:]
	name, ok := strings.CutPrefix(strings.TrimSpace(paragraph), "`files/")
	name, _, closed := strings.Cut(name, "`")
	if !ok || !closed {
		return ""
	}
	return name
}

// load writes the example and its documents down and compiles them.
func (p page) load(t *testing.T) (*lab.Lab, *boot.Table) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range p.files {
		file := filepath.Join(dir, "files", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(osLab+p.example), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range table.CheckAll() {
		t.Error(problem)
	}
	return l, table
}

func pages(t *testing.T) (all []page) {
	t.Helper()
	files, err := filepath.Glob(osDocs + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) != "README.md" {
			all = append(all, readPage(t, file))
		}
	}
	return all
}

// TestOSPages: every system has a page, and what its example boots is held against a golden file.
func TestOSPages(t *testing.T) {
	t.Parallel()
	all := pages(t)
	var names []string
	for _, p := range all {
		names = append(names, p.name)
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			l, table := p.load(t)
			var b strings.Builder
			for _, h := range l.Hosts {
				if h.Profile == nil {
					continue
				}
				preview, err := table.Preview(h)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "== %s boots %s\n%s", h.Name, h.Profile.Name, preview.Script)
				if preview.Reason != "" {
					t.Errorf("the page lacks a document: %s", preview.Reason)
				}
				for _, doc := range preview.Documents {
					fmt.Fprintf(&b, "== %s (%s)\n%s", doc.Name, doc.ContentType, doc.Body)
				}
			}
			golden.Check(t, update, "testdata/os/"+p.name+".txt", b.String())
		})
	}
	for _, os := range systems(t) {
		if os != "discover" && !slices.Contains(names, os) {
			t.Errorf("os: %s has no page in docs/os", os)
		}
	}
}

// systems returns the values of os in the schema.
func systems(t *testing.T) (names []string) {
	t.Helper()
	var s struct {
		Defs map[string]struct {
			Properties map[string]struct{ Enum []any }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(load.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Defs["profile"].Properties["os"].Enum {
		names = append(names, v.(string))
	}
	if len(names) < 10 {
		t.Fatalf("the schema names the systems %v", names)
	}
	return names
}

// TestOSTable: the table of docs/os says what the recipes do.
func TestOSTable(t *testing.T) {
	t.Parallel()
	const begin, end = "do not edit -->\n", "<!-- end of table -->\n"
	table := "\n| system | `os` | reads | installs | done, without the call |\n|---|---|---|---|---|\n"
	for _, p := range pages(t) {
		table += p.row(t)
	}
	golden.CheckBetween(t, update, filepath.Join(osDocs, "README.md"), begin, end, table+"\n")
}

// row says what the recipe of the first profile of a page is.
func (p page) row(t *testing.T) string {
	t.Helper()
	l, _ := p.load(t)
	profile := *l.Profiles[slices.IndexFunc(l.Profiles, func(q *lab.Profile) bool {
		return q.Kernel != "" && q.Install != lab.InstallNever || len(l.Profiles) == 1
	})]
	profile.Config, profile.Documents, profile.Args = "", nil, nil // nothing that could call
	r, err := recipe.Compile(&profile, os.DirFS(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	done := r.Signals(recipe.Data{})
	calls := done.String()
	if done.Has(install.Callback) {
		calls = "the recipe makes the call"
	}
	reads := strconv.Itoa(r.Reads())
	switch {
	case len(p.files) == 0:
		reads = "none"
	case r.Reads() == 0:
		reads = "any"
	}
	name := "none"
	if profile.OS != lab.OSNone {
		name = "`" + string(profile.OS) + "`"
	}
	return fmt.Sprintf("| [%s](%s.md) | %s | %s | %s | %s |\n", p.title, p.name, name, reads, profile.Install, calls)
}

// TestOSDocumentsByReference checks the rendered documents of the pages with reference validators.
func TestOSDocumentsByReference(t *testing.T) {
	t.Parallel()
	for ext, command := range map[string][]string{
		".ign": {"ignition-validate"}, ".bu": {"ignition-validate"}, ".xml": {"xmllint", "--noout", "--nonet"}, ".json": {"python3", "-m", "json.tool"},
	} {
		t.Run(ext, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, command[0])
			seen := 0
			for _, p := range pages(t) {
				l, table := p.load(t)
				for _, h := range l.Hosts {
					preview, err := table.Preview(h)
					if err != nil {
						t.Fatal(err)
					}
					for _, doc := range preview.Documents {
						if filepath.Ext(doc.Name) != ext {
							continue
						}
						seen++
						file := filepath.Join(t.TempDir(), doc.Name)
						// Debian's Ignition is of 2022 and reads up to 3.3.
						body := strings.Replace(string(doc.Body), `"version": "3.4.0"`, `"version": "3.3.0"`, 1)
						if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
							t.Fatal(err)
						}
						if out, err := exec.Command(command[0], append(command[1:], file)...).CombinedOutput(); err != nil {
							t.Errorf("%s of %s: %v\n%s", doc.Name, p.name, err, out)
						}
					}
				}
			}
			if seen == 0 {
				t.Error("no document was seen")
			}
		})
	}
}
