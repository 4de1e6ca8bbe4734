package configs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// markdownFiles returns the Markdown files that people read.
func markdownFiles(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("../../docs", func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".md") {
			pages = append(pages, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// TestDocumentedLabsLoad loads every whole lab file that README and docs show.
func TestDocumentedLabsLoad(t *testing.T) {
	t.Parallel()
	pages := markdownFiles(t)
	loaded := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "```") {
			source, ok := strings.CutPrefix(block, "yaml\n")
			if i%2 == 0 || !ok || !strings.HasPrefix(source, "version: 1\n") {
				continue
			}
			loaded++
			if _, err := load.Parse(page, []byte(source), load.Options{FileExists: func(string) bool { return true }}); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if loaded < 5 {
		t.Errorf("%d labs in %d pages: the test does not find them", loaded, len(pages))
	}
}

// TestDocumentedLinks follows the relative links of README and docs.
func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	pages := markdownFiles(t)
	followed := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "](")[1:] {
			link, _, _ := strings.Cut(part, ")")
			if strings.Contains(link, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link, "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			followed++
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s: link %s: %v", page, link, err)
				continue
			}
			if anchor != "" && !hasHeading(string(content), anchor) {
				t.Errorf("%s: link %s: no such heading", page, link)
			}
		}
	}
	if followed < 20 {
		t.Errorf("%d links in %d pages: the test does not find them", followed, len(pages))
	}
}

// hasHeading reports whether a page has the heading that a host of repositories gives that anchor.
func hasHeading(page, anchor string) bool {
	for line := range strings.Lines(page) {
		title, ok := strings.CutPrefix(line, "#")
		if !ok {
			continue
		}
		title = strings.ToLower(strings.TrimSpace(strings.TrimLeft(title, "#")))
		var b strings.Builder
		for _, r := range title {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				b.WriteRune(r)
			}
		}
		if b.String() == anchor {
			return true
		}
	}
	return false
}
