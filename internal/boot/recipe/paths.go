package recipe

import (
	"text/template/parse"

	"github.com/bootlab/bootlab/internal/lab"
)

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

// RoleOnly reports whether the path is the same for all hosts of one role.
func (p Path) RoleOnly() bool {
	for _, n := range p.nodes() {
		if _, text := n.(*parse.TextNode); !text && n.String() != "{{.Host.Role}}" {
			return false
		}
	}
	return true
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
