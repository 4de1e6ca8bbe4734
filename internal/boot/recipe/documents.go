package recipe

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/syntax"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Document is a rendered config document.
type Document struct {
	Name        string // below Data.DocumentsURL
	ContentType string
	Body        []byte
}

// A part is a document that the recipe itself makes.
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

// list returns the documents of d's host. Those of the profile are first, and replace those of the recipe of the same name.
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

// find returns the document of that name; empty: the config document.
func (r *Recipe) find(d Data, name string) (source, bool) {
	for _, s := range r.list(d) {
		if s.name == name && s.file+s.part.name != "" || name == "" && s.config && s.file != "" {
			return s, true
		}
	}
	return source{}, false
}

// DocumentFiles returns the documents that the profile names for d's host, below the files folder: the config document first, empty if
// there is none.
func (r *Recipe) DocumentFiles(d Data) (files []string, err error) {
	if r.config == nil {
		files = append(files, "")
	}
	for _, s := range r.list(d) {
		if s.err != nil {
			return nil, s.err
		}
		if s.part.name == "" {
			files = append(files, s.file)
		}
	}
	return files, nil
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

// Knows reports whether d's host has a document of that name, whether its file exists or not.
func (r *Recipe) Knows(d Data, name string) bool {
	_, ok := r.find(d, name)
	return ok
}

// Counts reports whether complete reads of that document are counted: only those of the config document are.
func (r *Recipe) Counts(d Data, name string) bool {
	s, ok := r.find(d, name)
	return ok && s.config
}

// Config renders and validates a document of d's host. name is the request below Data.DocumentsURL: empty or the name of the config document, or that
// of another document. For any other name, and for a document that does not exist yet, the error is fs.ErrNotExist. Errors of templates
// and of syntax are *DocumentError.
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
	body, _, err := s.render(r, d)
	if err != nil {
		return Document{}, err
	}
	if isButane(s.file) {
		ign, broken := syntax.Butane(body)
		if broken != nil {
			return Document{}, r.locate(s.file, body, broken)
		}
		body = ign
	}
	return Document{Name: s.name, ContentType: s.contentType(), Body: body}, nil
}

// isButane reports whether a document is Butane, which Ignition does not read. Local files cannot be embedded; templates can.
func isButane(file string) bool { ext := path.Ext(file); return ext == ".bu" || ext == ".butane" }

// render makes the document for one host, and validates it: before the script of a boot and when it is served, as its file may change at any
// time. Butane is not yet translated.
func (s source) render(r *Recipe, d Data) (body []byte, warnings []error, err error) {
	switch {
	case s.err != nil:
		return nil, nil, s.err
	case s.file == "":
		body, err = s.part.make(r, d)
		return body, nil, err
	}
	if body, err = r.files.render(s.file, d); err != nil {
		return nil, nil, err
	}
	v := r.validated.result(d.signature(s.file, body), func() validation { return s.validate(r, body) })
	for _, w := range v.warnings {
		warnings = append(warnings, r.locate(s.file, body, w))
	}
	if v.broken != nil {
		return nil, nil, r.locate(s.file, body, v.broken)
	}
	return body, warnings, nil
}

// validate checks a rendered document.
func (s source) validate(r *Recipe, body []byte) (v validation) {
	if isButane(s.file) {
		_, v.broken = syntax.Butane(body)
		return v
	}
	v.broken, v.warnings = syntax.Report(s.format(r.profile.OS), body)
	return v
}

// locate returns an error with its place in the source of the document. The lines are the same unless a template made more or fewer of
// them; then the reason gives the line.
func (r *Recipe) locate(file string, body []byte, broken *syntax.Error) *DocumentError {
	e := &DocumentError{File: path.Clean(file), Line: broken.Line, Column: broken.Column, Err: broken}
	if text, _ := fs.ReadFile(r.files.files, e.File); broken.Line > 0 && lines(text) != lines(body) {
		e.Line, e.Column = 0, 0
		e.Err = fmt.Errorf("line %d of what it renders to: %w", broken.Line, broken)
	}
	return e
}

func lines(text []byte) int { return bytes.Count(text, []byte{'\n'}) }

// format returns the format of a document: by its name, else by what the installer reads.
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

// contentType goes by the file's ending. Proxmox' installer needs it.
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

// seedParts is what cloud-init's NoCloud source requests with user-data. It retries each missing file ten times, so the optional ones
// are empty rather than missing.
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

// A validationCache holds the results of validating documents, so that a document for 10,000 hosts is validated about once: Ignition's
// library takes milliseconds for each. Documents that differ only in the values of their hosts have one result.
type validationCache struct {
	mu      sync.Mutex
	results map[[sha256.Size]byte]validation
}

// A validation is what is wrong with a document: its first error, or else what its reader will ignore.
type validation struct {
	broken   *syntax.Error
	warnings []*syntax.Error
}

// maxResults bounds a validationCache; a full cache is emptied.
const maxResults = 4096

// signature returns a hash of a rendered document of d's host, in which the host's own names, addresses and URLs are all the same.
// Values of Vars stay as they are: they may be anything.
func (d Data) signature(file string, body []byte) [sha256.Size]byte {
	var pairs []string
	for _, own := range []string{
		d.ConfigURL, d.DoneURL, d.DocumentsURL, d.Host.FQDN, d.Host.MAC.Hyphens(), d.Host.MAC.String(), d.Host.IP.text(), d.Host.IP6.text(),
		string(d.Host.Serial), d.Host.Name,
	} {
		if own != "" {
			pairs = append(pairs, own, unset) // a byte that no document holds
		}
	}
	return sha256.Sum256([]byte(file + unset + strings.NewReplacer(pairs...).Replace(string(body))))
}

// result returns the cached result for this signature, or that of validate.
func (c *validationCache) result(signature [sha256.Size]byte, validate func() validation) validation {
	c.mu.Lock()
	v, known := c.results[signature]
	c.mu.Unlock()
	if known {
		return v
	}
	v = validate()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results == nil || len(c.results) >= maxResults {
		c.results = map[[sha256.Size]byte]validation{}
	}
	c.results[signature] = v
	return v
}
