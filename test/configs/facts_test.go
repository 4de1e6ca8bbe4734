package configs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const factsDoc = "../../docs/facts.md"

var (
	factRow  = regexp.MustCompile(`(?m)^\| ([0BCE][0-9]*(?:\.[0-9]+)?) \| (.*) \| (.*) \| (.*) \|$`)
	factTest = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)(?:/([^`]+))?`")
)

// TestFacts: every test that the page of facts names is in the tree, with the case that it names, and every fact has a test or says why
// it has none.
func TestFacts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(factsDoc)
	if err != nil {
		t.Fatal(err)
	}
	rows := factRow.FindAllStringSubmatch(string(text), -1)
	if lines := strings.Count(string(text), "\n| ") - strings.Count(string(text), "\n|---"); len(rows) != lines { // each table has a head
		t.Errorf("%d rows are read, %d stand in the page", len(rows), lines)
	}
	seen := map[string]bool{}
	sources := map[string]string{}
	for _, row := range rows {
		no, held := row[1], row[4]
		if seen[no] {
			t.Errorf("fact %s stands there twice", no)
		}
		seen[no] = true
		named := factTest.FindAllStringSubmatch(held, -1)
		if len(named) == 0 && !strings.HasPrefix(held, "no test: ") {
			t.Errorf("fact %s names no test, nor why there is none: %s", no, held)
		}
		for _, n := range named {
			folder, function, part := n[1], n[2], n[3]
			if _, read := sources[folder]; !read {
				sources[folder] = testSource(t, folder)
			}
			if !strings.Contains(sources[folder], "\nfunc "+function+"(") {
				t.Errorf("fact %s: %s has no %s", no, folder, function)
			}
			if part != "" && !strings.Contains(sources[folder], `"`+part+`"`) {
				t.Errorf("fact %s: %s has no case %q", no, folder, part)
			}
		}
	}
}

// testSource returns all test files of a folder as one text.
func testSource(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
