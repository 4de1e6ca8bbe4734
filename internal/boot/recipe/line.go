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
	field string // as templates call it; empty: it is a text
}

func (p piece) of(d *Data) string {
	if p.field == "" {
		return p.text
	}
	value, _ := d.text(p.field) // piecesOf has seen that there is one
	return value
}

// text returns a field that is a text for every host, by the name that templates have for it; false: it is another one.
func (d *Data) text(name string) (value string, ok bool) {
	switch name {
	case "Host.Name":
		return d.Host.Name, true
	case "Host.FQDN":
		return d.Host.FQDN, true
	case "Host.Role":
		return d.Host.Role.String(), true
	case "Profile.Name":
		return d.Profile.Name, true
	case "FilesURL":
		return d.FilesURL, true
	case "ConfigURL":
		return d.ConfigURL, true
	case "DocumentsURL":
		return d.DocumentsURL, true
	case "DoneURL":
		return d.DoneURL, true
	}
	return "", false
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
		s := l.pieces[0].of(d)
		return s, checkUnset(s)
	}
	var b strings.Builder
	for _, p := range l.pieces {
		b.WriteString(p.of(d))
	}
	return b.String(), checkUnset(b.String())
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
			name := fieldOf(n)
			if _, ok := new(Data).text(name); !ok {
				return nil
			}
			pieces = append(pieces, piece{field: name})
		default:
			return nil
		}
	}
	return pieces
}

// fieldOf returns the name of the field that an action is, as Host.Name in {{.Host.Name}}; empty: it is more.
func fieldOf(n *parse.ActionNode) string {
	if len(n.Pipe.Decl) > 0 || len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 {
		return ""
	}
	f, ok := n.Pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok {
		return ""
	}
	return strings.Join(f.Ident, ".")
}
