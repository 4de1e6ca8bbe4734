package configs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLongTestsRun: each test that does more with BOOTLAB_LONG is run by a make target that sets it.
func TestLongTestsRun(t *testing.T) {
	t.Parallel()
	const root = "../.."
	runs := longRuns(t, root)
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		pkg := "./" + strings.TrimPrefix(filepath.Dir(path), root+"/")
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" || !long(f) || pkg == "./test/configs" {
				continue
			}
			found++
			if !slices.ContainsFunc(runs, func(r longRun) bool { return r.runs(pkg, f.Name.Name) }) {
				t.Errorf("%s of %s reads BOOTLAB_LONG: no make target runs it with BOOTLAB_LONG=1", f.Name.Name, pkg)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d tests read BOOTLAB_LONG: %v", found, err)
	}
}

// long reports whether a test reads BOOTLAB_LONG, itself or by package storetest.
func long(f *ast.FuncDecl) (yes bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			yes = yes || n.Value == `"BOOTLAB_LONG"`
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			yes = yes || ok && x.Name == "storetest" && (n.Sel.Name == "Long" || n.Sel.Name == "Rounds")
		}
		return true
	})
	return yes
}

// A longRun is a command of the Makefile that sets BOOTLAB_LONG.
type longRun struct {
	tests    *regexp.Regexp // nil: all
	packages []string
}

func (r longRun) runs(pkg, test string) bool {
	return (r.tests == nil || r.tests.MatchString(test)) && slices.ContainsFunc(r.packages, func(p string) bool {
		under, all := strings.CutSuffix(p, "/...")
		return p == pkg || all && strings.HasPrefix(pkg+"/", under+"/")
	})
}

// longRuns returns the commands of the Makefile that set BOOTLAB_LONG.
func longRuns(t *testing.T, root string) (runs []longRun) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	makefile := strings.ReplaceAll(string(text), "\\\n", " ")
	boots := regexp.MustCompile(`(?m)^BOOTS *= *(.*)$`).FindStringSubmatch(makefile)
	if boots == nil {
		t.Fatal("the Makefile has no BOOTS")
	}
	makefile = strings.NewReplacer("$$", "$", "$(BOOTS)", boots[1]).Replace(makefile)
	pattern := regexp.MustCompile(`-run '([^']*)'`)
	for line := range strings.Lines(makefile) {
		if !strings.Contains(line, "BOOTLAB_LONG=1") {
			continue
		}
		r := longRun{}
		if m := pattern.FindStringSubmatch(line); m != nil {
			r.tests = regexp.MustCompile(m[1])
		}
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "./") {
				r.packages = append(r.packages, word)
			}
		}
		runs = append(runs, r)
	}
	return runs
}
