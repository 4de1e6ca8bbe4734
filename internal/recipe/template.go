package recipe

import (
	"bytes"
	"io/fs"
	"path"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
)

// newTemplate returns a template in which a missing value is an error.
func newTemplate(name string) *template.Template {
	return template.New(name).Option("missingkey=error")
}

// execute renders a template of one line; a nil template is an empty one.
func execute(t *template.Template, d *Data) (string, error) {
	if t == nil {
		return "", nil
	}
	if line, ok := quick(t, d); ok {
		return line, nil
	}
	return slow(t, *d)
}

func slow(t *template.Template, d Data) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, d); err != nil {
		return "", keyError(t.Name(), err)
	}
	return b.String(), checkUnset(b.String())
}

// quick renders what most lines are: text, and fields that every host has. It reports false for any other, which
// text/template renders: a microsecond or two for a line, and a script has several.
func quick(t *template.Template, d *Data) (line string, ok bool) {
	if t.Tree == nil {
		return "", false
	}
	for _, node := range t.Root.Nodes {
		var piece string
		switch n := node.(type) {
		case *parse.TextNode:
			piece = string(n.Text)
		case *parse.ActionNode:
			if piece, ok = d.field(fieldOf(n)); !ok {
				return "", false
			}
		default:
			return "", false
		}
		line += piece
	}
	return line, true
}

// fieldOf returns the names in an action that is one field, as {{.Host.Name}} is; nil: it is more.
func fieldOf(n *parse.ActionNode) []string {
	if len(n.Pipe.Decl) > 0 || len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 {
		return nil
	}
	field, ok := n.Pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok {
		return nil
	}
	return field.Ident
}

// field returns the value of a field that is a text, whatever the host.
func (d *Data) field(names []string) (value string, ok bool) {
	switch {
	case len(names) != 2:
		return "", false
	case names[0] == "Host" && names[1] == "Name":
		return d.Host.Name, true
	case names[0] == "Host" && names[1] == "FQDN":
		return d.Host.FQDN, true
	case names[0] == "Host" && names[1] == "Role":
		return d.Host.Role, true
	case names[0] == "Profile" && names[1] == "Name":
		return d.Profile.Name, true
	}
	return "", false
}

func executeAll(ts []*template.Template, d *Data) ([]string, error) {
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

// A library reads documents and keeps them parsed while they do not change. A file is read anew for every rendering, as
// it may change at any time; to parse it anew would be most of the work.
type library struct {
	files fs.FS

	mu     sync.Mutex
	parsed map[string]parsed
}

type parsed struct {
	text []byte
	tmpl *template.Template
}

// maxParsed bounds what a library keeps. Profiles with a document for each host have more: those are parsed every time.
const maxParsed = 64

func newLibrary(files fs.FS) *library { return &library{files: files, parsed: map[string]parsed{}} }

// template returns the template in a file. Errors of parsing are *DocumentError.
func (l *library) template(file string) (*template.Template, error) {
	file = path.Clean(file)
	text, err := fs.ReadFile(l.files, file)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	have, ok := l.parsed[file]
	l.mu.Unlock()
	if ok && bytes.Equal(have.text, text) {
		return have.tmpl, nil
	}
	t, err := newTemplate(file).Parse(string(text))
	if err != nil {
		return nil, templateError(file, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.parsed) >= maxParsed {
		clear(l.parsed)
	}
	l.parsed[file] = parsed{text, t}
	return t, nil
}

// render renders a document for one host. Errors of the template are *DocumentError.
func (l *library) render(file string, d Data) ([]byte, error) {
	t, err := l.template(file)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return nil, templateError(path.Clean(file), err)
	}
	if err := checkUnset(b.String()); err != nil {
		return nil, &DocumentError{File: path.Clean(file), Err: err}
	}
	return b.Bytes(), nil
}

// names reports whether a document, as it is before it is rendered, holds text. One that is not there does not.
func (l *library) names(file, text string) bool {
	b, err := fs.ReadFile(l.files, path.Clean(file))
	return err == nil && bytes.Contains(b, []byte(text))
}
