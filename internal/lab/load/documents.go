package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Node is a value of a YAML document that is no lab file, with its place. The zero Node is a value that the document does not have.
type Node struct {
	node *yaml.Node
	file string
}

// YAMLDocuments returns the documents of a stream; file is where their places are. An error is a *lab.Problem.
func YAMLDocuments(file string, text []byte) (all []Node, err error) {
	fail := func(line, column int, reason string) error {
		return &lab.Problem{Pos: lab.Pos{File: file, Line: line, Column: column}, Message: notYAML + reason, Secret: true}
	}
	defer func() {
		if p := recover(); p != nil { // a bug of the parser
			all, err = nil, fail(1, 1, fmt.Sprintf("cannot be read: %v", p))
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, fail(1, 1, err.Error())
	}
	for {
		doc := new(yaml.Node)
		switch err := loader.Load(doc); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			line, column, reason := yamlReason(err)
			return nil, fail(max(line, 1), max(column, 1), plainly(reason))
		case len(doc.Content) > 0:
			all = append(all, Node{doc.Content[0], file})
		}
	}
}

// Exists reports whether the document has the value; null is none.
func (n Node) Exists() bool { return n.node != nil && n.node.Tag != "!!null" }

// Pos returns the place of the value.
func (n Node) Pos() lab.Pos {
	if n.node == nil {
		return lab.Pos{File: n.file, Line: 1, Column: 1}
	}
	return lab.Pos{File: n.file, Line: n.node.Line, Column: n.node.Column}
}

// At returns the value below keys of mappings.
func (n Node) At(keys ...string) Node {
	for _, key := range keys {
		n = n.entry(key)
	}
	return n
}

func (n Node) entry(key string) Node {
	if i := slices.Index(n.Keys(), key); i >= 0 {
		return n.follow(n.node.Content[2*i+1])
	}
	return Node{file: n.file}
}

// KeyPos returns the place of a key of a mapping itself.
func (n Node) KeyPos(key string) lab.Pos {
	if i := slices.Index(n.Keys(), key); i >= 0 {
		n.node = n.node.Content[2*i]
	}
	return n.Pos()
}

// follow returns a node, or the one that it is an alias of.
func (n Node) follow(to *yaml.Node) Node {
	if to.Kind == yaml.AliasNode && to.Alias != nil {
		to = to.Alias
	}
	return Node{to, n.file}
}

// Keys returns the keys of a mapping, in the order of the document.
func (n Node) Keys() (keys []string) {
	if n.node == nil || n.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.node.Content); i += 2 {
		keys = append(keys, n.node.Content[i].Value)
	}
	return keys
}

// List returns the values of a list.
func (n Node) List() (all []Node) {
	if n.node == nil || n.node.Kind != yaml.SequenceNode {
		return nil
	}
	for _, value := range n.node.Content {
		all = append(all, n.follow(value))
	}
	return all
}

// Text returns a scalar as it is written; empty for anything else.
func (n Node) Text() string {
	if !n.Exists() || n.node.Kind != yaml.ScalarNode {
		return ""
	}
	return n.node.Value
}
