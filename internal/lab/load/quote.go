package load

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/lab"
)

// Quote sets the source of problems: the lines that they are about, as the files have them now. What may hold secrets is left out. A
// problem that was found after the file was read, at the name of an entry, is moved to the value that its key names.
func Quote(problems lab.Problems) {
	files := map[string]*quoted{}
	for _, p := range problems {
		if p.Secret || p.Source != "" || p.Pos.Line == 0 {
			continue
		}
		f := files[p.Pos.File]
		if f == nil {
			f = &quoted{}
			if data, err := readLimited(p.Pos.File); err == nil && len(data) <= maxFileSize {
				f.data, f.lines = data, strings.Split(string(data), "\n")
			}
			files[p.Pos.File] = f
		}
		f.moveToValue(p)
		if p.Pos.Line <= len(f.lines) {
			p.Source = strings.Clone(strings.TrimRight(f.lines[p.Pos.Line-1], " \r")) // not with the whole file
		}
	}
	problems.Sort()
}

// A quoted file is one that problems are of.
type quoted struct {
	data   []byte
	lines  []string
	parsed bool
	top    *yaml.Node // nil: it is not YAML
}

// moveToValue moves a problem at one of the keys above the value that it names to that value.
func (f *quoted) moveToValue(p *lab.Problem) {
	if !strings.Contains(p.Key, ".") || f.data == nil {
		return
	}
	if !f.parsed {
		f.parsed = true
		if doc, err := oneDocument(f.data); err == nil && len(doc.Content) > 0 {
			f.top = doc.Content[0]
		}
	}
	if v := valueOf(f.top, p.Key, p.Pos); v != nil {
		p.Pos.Line, p.Pos.Column = v.Line, v.Column
	}
}

// valueOf returns the value that a path of keys below n names, if a key of the path is at pos. Names may have dots: of the keys that fit
// the longest is meant.
func valueOf(n *yaml.Node, path string, pos lab.Pos) *yaml.Node {
	for passed := false; n != nil; {
		var next *yaml.Node
		switch {
		case path == "" && passed:
			return n
		case strings.HasPrefix(path, "["):
			index, rest, _ := strings.Cut(path[1:], "]")
			i, err := strconv.Atoi(index)
			if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
				return nil
			}
			next, path = n.Content[i], rest
		case n.Kind == yaml.MappingNode:
			path = strings.TrimPrefix(path, ".")
			longest := -1
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				if rest, ok := strings.CutPrefix(path, k.Value); ok && len(k.Value) > longest && (rest == "" || rest[0] == '.' || rest[0] == '[') {
					longest, next = len(k.Value), n.Content[i+1]
					passed = passed || k.Line == pos.Line && k.Column == pos.Column
				}
			}
			path = path[max(longest, 0):]
		}
		n = next
	}
	return nil
}
