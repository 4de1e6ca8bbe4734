package load

import (
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/golden"
)

const (
	docsFile  = "../../../docs/lab-file.md"
	docsBegin = "<!-- keys: made from the loader's types by go test ./internal/lab/load -update; do not edit -->\n"
	docsEnd   = "<!-- end of keys -->\n"
)

// TestDocsAreComplete makes the tables of keys from the raw types and holds docs/lab-file.md against them.
func TestDocsAreComplete(t *testing.T) {
	update := rewriteGolden()
	golden.CheckBetween(t, &update, docsFile, docsBegin, docsEnd, docKeys())
}

// TestDocsLoad loads the whole labs of the page.
func TestDocsLoad(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for i, block := range strings.Split(string(data), "```") {
		text, isYAML := strings.CutPrefix(block, "yaml\n")
		if i%2 == 0 || !isYAML || !strings.HasPrefix(text, "version:") {
			continue
		}
		loaded++
		if _, err := Parse(docsFile, []byte(text), Options{FileExists: func(string) bool { return true }}); err != nil {
			t.Error(err)
		}
	}
	if loaded == 0 {
		t.Errorf("%s holds no lab", docsFile)
	}
}

var wholeLab = regexp.MustCompile(`(?m)^version: 1\b`)

// TestOpenShiftDocs loads each whole lab of the docs that has an OpenShift cluster: nothing warns of it but files that do not exist, and its
// machines wait for no bootstrap that there is not.
func TestOpenShiftDocs(t *testing.T) {
	t.Parallel()
	root := "../../.."
	files := []string{filepath.Join(root, "README.md")}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "configs/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := []string{string(text)}
		if filepath.Ext(file) == ".md" {
			blocks = strings.Split(string(text), "```")
		}
		for _, block := range blocks {
			block = strings.TrimPrefix(block, "yaml\n")
			if !wholeLab.MatchString(block) || !strings.Contains(block, "kind: openshift") {
				continue
			}
			l, err := Parse(file, []byte(block), Options{})
			if err != nil {
				t.Error(err)
				continue
			}
			for _, w := range l.Warnings {
				if w.Path == "" {
					t.Error(w)
				}
			}
			for _, c := range l.Clusters {
				seen[filepath.Base(file)] = seen[filepath.Base(file)] || c.Kind == lab.OpenShift
				if c.LacksBootstrap() {
					t.Errorf("%s: cluster %s has no bootstrap machine", file, c.Name)
				}
			}
		}
	}
	for _, file := range []string{"README.md", "openshift.yaml", "reference.yaml", "openshift-upi.md", "single-node.md"} {
		if !seen[file] {
			t.Errorf("%s: no OpenShift cluster was found", file)
		}
	}
}

// docKeys writes one table for each mapping of the lab file, in the order of the types.
func docKeys() string {
	var b strings.Builder
	docTable(&b, reflect.TypeFor[rawLab](), "")
	return b.String()
}

func docTable(b *strings.Builder, t reflect.Type, path string) {
	title := "The whole file"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(b, "\n### %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", title)
	for i := range t.NumField() {
		f := t.Field(i)
		def := f.Tag.Get("def")
		if f.Tag.Get("req") != "" {
			def = "**required**"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.Tag.Get("yaml"), docValue(reflect.New(f.Type).Interface()), cell(def), cell(f.Tag.Get("doc")))
	}
	for i := range t.NumField() {
		f := t.Field(i)
		for _, inner := range innerRaw(f.Type) {
			suffix := strings.ReplaceAll(inner.suffix, "*", "NAME")
			switch kind := f.Type.Name(); {
			case strings.HasPrefix(kind, "list"):
				suffix = "[]"
			case strings.HasPrefix(kind, "dict[") && strings.Contains(kind, ".list["):
				suffix = ".NAME[]"
			}
			docTable(b, inner.t, strings.TrimPrefix(path+"."+f.Tag.Get("yaml"), ".")+suffix)
		}
	}
}

// docValue says in words what the schema says of a value.
func docValue(p any) string {
	s := &schemaWriter{defs: map[string]any{}}
	return docSchema(s.of(p))
}

func docSchema(schema any) string {
	m, ok := schema.(map[string]any)
	if !ok {
		return docSpec(schema.(spec))
	}
	if _, ok := m["$ref"]; ok {
		return "keys below"
	}
	if options, ok := m["anyOf"].([]any); ok {
		return docSchema(options[0]) + ", or " + docSchema(options[1])
	}
	if items, ok := m["items"]; ok {
		return "list: " + docSchema(items)
	}
	if inner, ok := m["additionalProperties"]; ok {
		return "by name: " + docSchema(inner)
	}
	return "names with any values"
}

func docSpec(s spec) string {
	values, ok := s["enum"].([]any)
	if !ok {
		words, _, _ := strings.Cut(s["description"].(string), ", such as")
		return cell(words)
	}
	var words []string
	for _, v := range values {
		if word, ok := v.(string); ok {
			words = append(words, "`"+word+"`")
		}
	}
	return strings.Join(words, ", ")
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "*.", "\\*.", "*:", "\\*:", ":*", ":\\*").Replace(s)
}

// rewriteGolden reports whether -update was given; the flag is declared beside the other tests of this folder.
func rewriteGolden() bool {
	f := goflag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}
