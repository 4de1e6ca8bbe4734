package recipe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"

	"bootlab/internal/lab"
)

// A Recipe is one profile with its templates parsed. It is immutable.
type Recipe struct {
	profile *lab.Profile
	system  system
	files   fs.FS // root of documents and templates

	kernel, rootfs, image, config *template.Template // of paths; nil where the profile has none
	initrd                        []*template.Template
	args                          []*template.Template
}

// Compile parses the templates of p. Files are read from files, which is rooted at the lab's files folder, when a
// document is rendered: they may change, and come later than the lab file.
func Compile(p *lab.Profile, files fs.FS) (*Recipe, error) {
	r := &Recipe{profile: p, system: systemOf(p.OS), files: files}
	var problems lab.Problems
	parse := func(key, text string) *template.Template {
		if text == "" {
			return nil
		}
		t, err := newTemplate(key).Parse(text)
		if err != nil {
			problems.Addf(p.Pos, "profiles."+p.Name+"."+key, "%q is not a template: %v", text, err)
		}
		return t
	}
	r.kernel = parse("kernel", p.Kernel)
	r.rootfs = parse("rootfs", p.Rootfs)
	r.image = parse("image", p.Image)
	r.config = parse("config", p.Config)
	for _, s := range p.Initrd {
		r.initrd = append(r.initrd, parse("initrd", s))
	}
	for _, s := range p.Args {
		r.args = append(r.args, parse("args", s))
	}
	return r, problems.Err()
}

// newTemplate returns a template in which a missing value is an error.
func newTemplate(name string) *template.Template {
	return template.New(name).Option("missingkey=error")
}

// Reads returns how many complete reads of the config document one boot may make; 0: any number.
func (r *Recipe) Reads() int {
	if r.profile.ConfigReads > 0 {
		return r.profile.ConfigReads
	}
	return r.system.reads
}

// Check renders everything for d and returns what would fail at boot: all problems, at the position of the profile. A
// document that is not there yet is none of them.
func (r *Recipe) Check(d Data) error {
	var problems lab.Problems
	add := func(key string, err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems.Addf(r.profile.Pos, "profiles."+r.profile.Name+"."+key, "%s", For(d.Host.Name, err))
		}
	}
	if r.profile.IPXE != "" || r.profile.Kernel != "" {
		_, err := r.Script(d)
		add("script", err)
	}
	if r.profile.Config != "" {
		_, err := r.Config(d, "")
		add("config", err)
	}
	return problems.Err()
}

// For says for which host something failed.
func For(host string, err error) string {
	if strings.Contains(err.Error(), "nil pointer evaluating *recipe.ClusterData") {
		return fmt.Sprintf("for host %s: %v: it belongs to no cluster: want {{if .Cluster}} around it, or cluster there", host, err)
	}
	return fmt.Sprintf("for host %s: %v", host, err)
}

// A Document is a rendered config document.
type Document struct {
	Name        string // base name of the file it was rendered from
	ContentType string
	Body        []byte
}

// IsConfig reports whether name is that of the profile's config document itself.
func (r *Recipe) IsConfig(d Data, name string) bool {
	if r.system.seed {
		return r.Counts(name)
	}
	base, err := r.configName(d)
	return err == nil && base == name
}

// Counts reports whether complete reads of that document are counted: of a NoCloud seed only those of user-data.
func (r *Recipe) Counts(name string) bool { return !r.system.seed || name == "" || name == "user-data" }

// Config renders the config document of d's host. name is what the machine asked for below its config URL: empty or the
// document's own name, or for a seed one of cloud-init's four names. Any other name is fs.ErrNotExist.
func (r *Recipe) Config(d Data, name string) (Document, error) {
	file, err := execute(r.config, d)
	if err != nil {
		return Document{}, err
	}
	if file == "" {
		return Document{}, fmt.Errorf("profile %s has no config document: %w", r.profile.Name, fs.ErrNotExist)
	}
	if r.system.seed && name != "" && name != "user-data" {
		return seedDocument(d, name)
	}
	if base := path.Base(file); name != "" && name != base && !r.system.seed {
		return Document{}, fmt.Errorf("the config document of %s is %s, not %q: %w", d.Host.Name, base, name, fs.ErrNotExist)
	}
	body, err := r.renderFile(file, d)
	if err == nil && isButane(file) {
		body, err = ignitionFromButane(file, body)
	}
	if err != nil {
		return Document{}, err
	}
	return Document{Name: path.Base(file), ContentType: contentType(file), Body: body}, nil
}

// seedDocument is what cloud-init's NoCloud source asks for beside user-data. It retries each missing one ten times, so
// that the optional ones are empty rather than missing.
func seedDocument(d Data, name string) (Document, error) {
	doc := Document{Name: name, ContentType: "text/plain; charset=utf-8"}
	switch name {
	case "meta-data":
		doc.Body = fmt.Appendf(nil, "instance-id: %s-%s\nlocal-hostname: %s\n", d.Host.Name, d.Host.MAC.Hyphens(), d.Host.Name)
	case "vendor-data", "network-config":
	default:
		return Document{}, fmt.Errorf("a NoCloud seed has no %q: %w", name, fs.ErrNotExist)
	}
	return doc, nil
}

// HasConfig reports whether the profile has a config document.
func (r *Recipe) HasConfig() bool { return r.config != nil }

// Image returns the path of the profile's image for one host; empty if it has none.
func (r *Recipe) Image(d Data) (string, error) { return execute(r.image, d) }

// renderFile renders a document below files for one host.
func (r *Recipe) renderFile(file string, d Data) ([]byte, error) {
	text, err := fs.ReadFile(r.files, path.Clean(file))
	if err != nil {
		return nil, err
	}
	t, err := newTemplate(file).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), checkUnset(b.String())
}

// fileNames reports whether a document, as it is before it is rendered, holds text. One that is not there does not.
func (r *Recipe) fileNames(file, text string) bool {
	b, err := fs.ReadFile(r.files, path.Clean(file))
	return err == nil && bytes.Contains(b, []byte(text))
}

// execute renders a template of one line; a nil template is an empty one.
func execute(t *template.Template, d Data) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	if err := t.Execute(&b, d); err != nil {
		return "", err
	}
	return b.String(), checkUnset(b.String())
}

func executeAll(ts []*template.Template, d Data) ([]string, error) {
	out := make([]string, len(ts))
	for i, t := range ts {
		s, err := execute(t, d)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// contentType is by the file's ending: Ignition and Talos do not care, browsers and curl users do.
func contentType(file string) string {
	switch path.Ext(file) {
	case ".ign", ".bu", ".butane":
		return "application/vnd.coreos.ignition+json"
	case ".json":
		return "application/json"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".xml":
		return "application/xml"
	default:
		return "text/plain; charset=utf-8"
	}
}
