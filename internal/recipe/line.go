package recipe

import (
	"strings"
	"text/template"
	"text/template/parse"
)

// A line is a template of one line: a path or a kernel argument. A nil line is an empty one.
//
// Most are plain: text, and fields that every host has. text/template takes a microsecond or two for one of those, and a
// script has several; so they are taken apart when they are parsed.
type line struct {
	tmpl   *template.Template
	pieces []piece // nil: only text/template renders it
}

// A piece of a plain line is a text or a field of Data.
type piece struct {
	text  string
	field field
}

// A field is one of those that are a text for every host. It is no function: data that is handed to one that the compiler
// does not know is put on the heap.
type field uint8

const (
	noField field = iota
	hostName
	hostFQDN
	hostRole
	profileName
	filesURL
	configURL
	documentsURL
	doneURL
)

// fieldNamed returns the field that templates call so; noField: it is another one.
func fieldNamed(name string) field {
	switch name {
	case "Host.Name":
		return hostName
	case "Host.FQDN":
		return hostFQDN
	case "Host.Role":
		return hostRole
	case "Profile.Name":
		return profileName
	case "FilesURL":
		return filesURL
	case "ConfigURL":
		return configURL
	case "DocumentsURL":
		return documentsURL
	case "DoneURL":
		return doneURL
	}
	return noField
}

func (p piece) of(d *Data) string {
	switch p.field {
	case hostName:
		return d.Host.Name
	case hostFQDN:
		return d.Host.FQDN
	case hostRole:
		return d.Host.Role
	case profileName:
		return d.Profile.Name
	case filesURL:
		return d.FilesURL
	case configURL:
		return d.ConfigURL
	case documentsURL:
		return d.DocumentsURL
	case doneURL:
		return d.DoneURL
	}
	return p.text
}

func newLine(name, text string) (*line, error) {
	t, err := newTemplate(name).Parse(text)
	if err != nil {
		return nil, err
	}
	return &line{tmpl: t, pieces: piecesOf(t)}, nil
}

// key returns the profile's key that the line is from.
func (l *line) key() string { return l.tmpl.Name() }

func (l *line) render(d *Data) (string, error) {
	switch {
	case l == nil:
		return "", nil
	case l.pieces == nil:
		return l.execute(*d)
	case len(l.pieces) == 1:
		return l.pieces[0].of(d), nil
	}
	var b strings.Builder
	for _, p := range l.pieces {
		b.WriteString(p.of(d))
	}
	return b.String(), nil
}

// execute renders any line.
func (l *line) execute(d Data) (string, error) {
	var b strings.Builder
	if err := l.tmpl.Execute(&b, d); err != nil {
		return "", keyError(l.key(), err)
	}
	return b.String(), checkUnset(b.String())
}

func renderAll(lines []*line, d *Data) ([]string, error) {
	out := make([]string, len(lines))
	for i, l := range lines {
		s, err := l.render(d)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// piecesOf takes a plain line apart; nil: it is none.
func piecesOf(t *template.Template) (pieces []piece) {
	if t.Tree == nil {
		return nil
	}
	for _, node := range t.Root.Nodes {
		switch n := node.(type) {
		case *parse.TextNode:
			pieces = append(pieces, piece{text: string(n.Text)})
		case *parse.ActionNode:
			field := fieldOf(n)
			if field == noField {
				return nil
			}
			pieces = append(pieces, piece{field: field})
		default:
			return nil
		}
	}
	return pieces
}

// fieldOf returns the field that an action is, as {{.Host.Name}} is; noField: it is more, or another one.
func fieldOf(n *parse.ActionNode) field {
	if len(n.Pipe.Decl) > 0 || len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 {
		return noField
	}
	f, ok := n.Pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok {
		return noField
	}
	return fieldNamed(strings.Join(f.Ident, "."))
}
