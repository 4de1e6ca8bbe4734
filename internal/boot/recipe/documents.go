package recipe

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/bootlab/bootlab/internal/boot/syntax"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Document is a rendered config document.
type Document struct {
	Name        string // what the machine asks for below Data.DocumentsURL
	ContentType string
	Body        []byte
}

// A part is a document that the recipe itself makes and serves beside the config document.
type part struct {
	name string
	make func(r *Recipe, d Data) ([]byte, error)
}

// A source is where one of the documents of a host comes from.
type source struct {
	key    string // of the profile
	name   string // below Data.DocumentsURL
	file   string // empty: made by the recipe
	part   part
	config bool // it is the config document itself
	err    error
}

// list returns the documents of d's host: the profile's own first, which may take the place of the recipe's.
func (r *Recipe) list(d Data) (all []source) {
	if r.config != nil {
		s := source{key: "config", config: true}
		s.file, s.err = r.config.render(&d)
		if s.name = path.Base(s.file); r.system.seed {
			s.name = "user-data"
		}
		all = append(all, s)
	}
	for i, t := range r.documents {
		s := source{key: fmt.Sprintf("documents[%d]", i)}
		s.file, s.err = t.render(&d)
		s.name = path.Base(s.file)
		all = append(all, s)
	}
	if r.system.parts == nil {
		return all
	}
	for _, p := range r.system.parts(r.profile) {
		all = append(all, source{key: "script", name: p.name, part: p})
	}
	return all
}

// find returns the document that a machine asks for by name; empty: the config document.
func (r *Recipe) find(d Data, name string) (source, bool) {
	for _, s := range r.list(d) {
		if s.name == name && s.file+s.part.name != "" || name == "" && s.config && s.file != "" {
			return s, true
		}
	}
	return source{}, false
}

// Names returns the names of all documents of d's host, the config document's first.
func (r *Recipe) Names(d Data) (names []string) {
	for _, s := range r.list(d) {
		if s.err == nil && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

// Knows reports whether d's host has a document of that name, there yet or not.
func (r *Recipe) Knows(d Data, name string) bool {
	_, ok := r.find(d, name)
	return ok
}

// Counts reports whether complete reads of that document are counted: those of the config document alone.
func (r *Recipe) Counts(d Data, name string) bool {
	s, ok := r.find(d, name)
	return ok && s.config
}

// Config renders a document of d's host. name is what the machine asked for below Data.DocumentsURL: the config
// document's own name, or empty for it, that of another document of the profile, or of what the recipe adds. Any other
// name is fs.ErrNotExist, as is a document that is not there yet. Errors of templates are *DocumentError.
func (r *Recipe) Config(d Data, name string) (Document, error) {
	if name == "" && !r.HasConfig() {
		return Document{}, fmt.Errorf("profile %s has no config document: %w", r.profile.Name, fs.ErrNotExist)
	}
	if _, err := r.config.render(&d); err != nil {
		return Document{}, err
	}
	s, ok := r.find(d, name)
	if !ok {
		return Document{}, fmt.Errorf("%s has no document %q: %w", d.Host.Name, name, fs.ErrNotExist)
	}
	body, err := s.render(r, d)
	if err != nil {
		return Document{}, err
	}
	return Document{Name: s.name, ContentType: s.contentType(), Body: body}, nil
}

// render makes the document for one host.
func (s source) render(r *Recipe, d Data) ([]byte, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.file == "":
		return s.part.make(r, d)
	}
	body, err := r.files.render(s.file, d)
	if err != nil || !isButane(s.file) {
		return body, err
	}
	ign, broken := syntax.Butane(body)
	if broken != nil {
		return nil, r.place(s.file, body, broken)
	}
	return ign, nil
}

// isButane reports whether a document is Butane, which people write and Ignition does not read. Local files cannot be
// embedded: the document is made for one host, and templates are the way to put things in.
func isButane(file string) bool { ext := path.Ext(file); return ext == ".bu" || ext == ".butane" }

// check renders the document and holds it against the syntax of its kind.
func (s source) check(r *Recipe, d Data) error {
	if s.err != nil || s.file == "" {
		_, err := s.render(r, d)
		return err
	}
	body, err := r.files.render(s.file, d)
	if err != nil {
		return err
	}
	broken := r.judged.verdict(d.signature(s.file, body), func() *syntax.Error { return s.broken(r, body) })
	if broken != nil {
		return r.place(s.file, body, broken)
	}
	return nil
}

// broken returns what is wrong with a rendered document.
func (s source) broken(r *Recipe, body []byte) *syntax.Error {
	if isButane(s.file) {
		_, broken := syntax.Butane(body)
		return broken
	}
	return syntax.Check(s.format(r.profile.OS), body)
}

// place says where in a file a rendered document is broken. Its lines are those of the file unless a template made more
// or fewer of them; then only the reason says which line it is.
func (r *Recipe) place(file string, body []byte, broken *syntax.Error) *DocumentError {
	e := &DocumentError{File: path.Clean(file), Line: broken.Line, Column: broken.Column, Err: broken}
	if text, _ := fs.ReadFile(r.files.files, e.File); broken.Line > 0 && lines(text) != lines(body) {
		e.Line, e.Column = 0, 0
		e.Err = fmt.Errorf("line %d of what it renders to: %w", broken.Line, broken)
	}
	return e
}

func lines(text []byte) int { return bytes.Count(text, []byte{'\n'}) }

// format returns what a document of the profile is written in: by its name, else by what its installer takes.
func (s source) format(os lab.OS) syntax.Format {
	if f := syntax.Of(path.Ext(s.file)); f != syntax.Any || !s.config {
		return f
	}
	switch os {
	case lab.OSCoreOS, lab.OSFlatcar:
		return syntax.Ignition
	case lab.OSTalos, lab.OSHarvester, lab.OSKairos:
		return syntax.YAML
	case lab.OSUbuntu, lab.OSCloudInit:
		return syntax.UserData
	case lab.OSDebian:
		return syntax.Preseed
	case lab.OSAnaconda:
		return syntax.Kickstart
	case lab.OSAutoYaST:
		return syntax.XML
	}
	return syntax.Any
}

// contentType is by the file's ending: Proxmox goes by it, Ignition and Talos do not care, browsers and curl users do.
func (s source) contentType() string {
	switch path.Ext(s.file + s.part.name) {
	case ".ign", ".bu", ".butane":
		return "application/vnd.coreos.ignition+json"
	case ".json":
		return "application/json"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".xml":
		return "application/xml"
	case ".toml":
		return "application/toml"
	default:
		return "text/plain; charset=utf-8"
	}
}

// seedParts is what cloud-init's NoCloud source asks for beside user-data. It retries each missing one ten times, so that
// the optional ones are empty rather than missing.
func seedParts(*lab.Profile) []part {
	empty := func(*Recipe, Data) ([]byte, error) { return nil, nil }
	return []part{
		{"meta-data", func(_ *Recipe, d Data) ([]byte, error) {
			return fmt.Appendf(nil, "instance-id: %s-%s\nlocal-hostname: %s\n", d.Host.Name, d.Host.MAC.Hyphens(), d.Host.Name), nil
		}},
		{"vendor-data", empty},
		{"network-config", empty},
	}
}
