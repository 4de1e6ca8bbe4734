package recipe

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"

	"github.com/bootlab/bootlab/internal/lab"
)

// newTemplate returns a template in which a missing value is an error.
func newTemplate(name string) *template.Template {
	return template.New(name).Option("missingkey=error")
}

// A library reads documents and keeps them parsed while they do not change. A file is read for every rendering, as it may change at
// any time; parsing it would be most of the work.
type library struct {
	files fs.FS

	mu     sync.Mutex
	parsed map[string]parsed // nil: nothing is kept
}

type parsed struct {
	text []byte
	tmpl *template.Template
}

// maxParsed bounds the parsed documents. A profile with a document for each host has more; they are parsed every time.
const maxParsed = 64

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
	if l.parsed == nil {
		return t, nil
	}
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

// names reports whether the source of a document holds text.
func (l *library) names(file, text string) bool {
	b, err := fs.ReadFile(l.files, path.Clean(file))
	return err == nil && bytes.Contains(b, []byte(text))
}

// A line is a template of one line: a path or a kernel argument. A nil line is an empty one.
type line struct{ tmpl *template.Template }

func newLine(name, text string) (*line, error) {
	t, err := newTemplate(name).Parse(text)
	if err != nil {
		return nil, err
	}
	return &line{t}, nil
}

// key returns the profile's key that the line is from.
func (l *line) key() string { return l.tmpl.Name() }

func (l *line) render(d *Data) (string, error) {
	if l == nil {
		return "", nil
	}
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

// A Path is a file below the files folder that the profile names at a key.
type Path struct {
	lab.ProfilePath
	line *line // nil: the text is the path
}

// Paths returns the files that the profile names. They are rendered here for the boot script, the documents, and the rule
// of which files may be fetched.
func (r *Recipe) Paths() []Path {
	lines := map[string]*line{}
	for _, l := range r.lines() {
		lines[l.key()] = l
	}
	var paths []Path
	for _, p := range r.profile.Paths() {
		paths = append(paths, Path{p, lines[p.Key]})
	}
	return paths
}

// Render returns the path for one host and the NIC that it boots from.
func (p Path) Render(d Data) (string, error) {
	if p.line == nil {
		return p.Text, nil
	}
	return p.line.render(&d)
}

// Literals returns the texts between which templates put something; there is one for a path without templates.
func (p Path) Literals() []string {
	literals := []string{""}
	for _, n := range p.nodes() {
		if text, ok := n.(*parse.TextNode); ok {
			literals[len(literals)-1] += string(text.Text)
		} else {
			literals = append(literals, "")
		}
	}
	return literals
}

// DependsOnMachine reports whether the path may differ between two machines of a pool, which have the same network, profile, role and
// variables: rendering it for some of them does not show it for all.
func (p Path) DependsOnMachine() bool { return slices.ContainsFunc(p.nodes(), dependsOnMachine) }

func dependsOnMachine(n parse.Node) bool {
	branch := func(b parse.BranchNode) bool {
		return dependsOnMachine(b.Pipe) || dependsOnMachine(b.List) || b.ElseList != nil && dependsOnMachine(b.ElseList)
	}
	switch n := n.(type) {
	case *parse.TextNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.NilNode, *parse.IdentifierNode, *parse.CommentNode:
		return false
	case *parse.ListNode:
		return slices.ContainsFunc(n.Nodes, dependsOnMachine)
	case *parse.ActionNode:
		return dependsOnMachine(n.Pipe)
	case *parse.PipeNode:
		return slices.ContainsFunc(n.Cmds, func(c *parse.CommandNode) bool { return slices.ContainsFunc(c.Args, dependsOnMachine) })
	case *parse.IfNode:
		return branch(n.BranchNode)
	case *parse.WithNode:
		return branch(n.BranchNode)
	case *parse.RangeNode:
		return branch(n.BranchNode)
	case *parse.FieldNode:
		of := strings.Join(n.Ident[:min(2, len(n.Ident))], ".")
		return of != "Host.Role" && of != "Host.Vars" && !slices.Contains([]string{"Network", "Cluster", "Profile"}, n.Ident[0])
	}
	return true // the whole of the data, or a part of a value
}

func (p Path) nodes() []parse.Node {
	switch {
	case p.line == nil:
		return []parse.Node{&parse.TextNode{NodeType: parse.NodeText, Text: []byte(p.Text)}}
	case p.line.tmpl.Tree == nil: // an empty template
		return nil
	}
	return p.line.tmpl.Root.Nodes
}
