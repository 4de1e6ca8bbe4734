package recipe

import (
	"bytes"
	"io/fs"
	"path"
	"sync"
	"text/template"
)

// newTemplate returns a template in which a missing value is an error.
func newTemplate(name string) *template.Template {
	return template.New(name).Option("missingkey=error")
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
