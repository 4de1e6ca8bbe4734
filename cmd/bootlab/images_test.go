package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImages lists, pulls and lists again: what is there, what is missing, what cannot be fetched.
func TestImages(t *testing.T) {
	const hello, sum = "hello", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hello":
			fmt.Fprint(w, hello)
		case "/stable.json":
			fmt.Fprintf(w, `{"architectures":{"x86_64":{"artifacts":{"metal":{"formats":{"iso":{"disk":{"location":"http://%s/hello","sha256":%q}}}}}}}}`, r.Host, sum)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(up.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.yaml")
	text := strings.ReplaceAll(`version: 1
domain: test
images:
  images/hello: {url: URL/hello, sha256: SUM}
  images/gone: {url: URL/gone, sha256: SUM}
  images/coreos: {stream: URL/stable.json, format: iso}
`, "URL", up.URL)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SUM", sum)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range []step{
		{args: "images", out: []string{"images/hello missing -", "images/gone missing", "images/coreos missing - " + up.URL + "/stable.json"}},
		{args: "images pull images/nope", err: `no image "images/nope" in the lab file`},
		{args: "images pull --parallel 0", err: "want 1 or more"},
		{args: "images pull images/hello", out: []string{"images/hello: downloaded 5 B in"}, not: []string{"gone"}},
		{args: "images pull", err: "1 of 3 files could not be fetched", out: []string{
			"images/hello: present, 5 B", "images/coreos/disk: downloaded 5 B", "images/gone: failed: " + up.URL + "/gone: 404 Not Found",
		}},
		{args: "images", out: []string{"images/hello present 5 B", "images/gone missing", "images/coreos/disk present 5 B"}},
		{args: "images --json", out: []string{`"state": "present"`}},
		{args: "images pull --json images/coreos", out: []string{`"outcome":"kept"`}, json: true},
	} {
		s.check(t, run(t.Context(), append(strings.Fields(s.args), "--lab", file)...))
	}
}

// TestImagesWrongStream: the document of a stream that is wrong is an error, whatever else is not pulled yet; the list has all images.
func TestImagesWrongStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stream := filepath.Join(dir, "files/images/a/stream.json") // of an earlier pull, of another format
	if err := os.MkdirAll(filepath.Dir(stream), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "lab.yaml")
	for name, text := range map[string]string{
		stream: `{"architectures":{"x86_64":{"artifacts":{"metal":{"formats":{"iso":{}}}}}}}`,
		file: "version: 1\ndomain: test\nimages:\n  images/a: {stream: 'http://127.0.0.1:1/s.json', format: pxe}\n" +
			"  images/b: {stream: 'http://127.0.0.1:1/x.json', format: iso}\n  images/c: {url: 'http://127.0.0.1:1/c', sha256: " + strings.Repeat("0", 64) + "}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := []string{"images/a wrong: ", `the document has no format "pxe": want one of iso`, "images/b missing", "images/c missing"}
	step{err: "images.images/a: the document has no format", out: out}.check(t, run(t.Context(), "images", "--lab", file))
	step{err: "images.images/a: ", json: true, out: []string{`"state": "wrong"`}}.check(t, run(t.Context(), "images", "--json", "--lab", file))
}

// TestPullNothing says that there is nothing to do; a script that reads objects gets none.
func TestPullNothing(t *testing.T) {
	t.Parallel()
	step{out: []string{"the lab file has no images"}}.check(t, run(t.Context(), "images", "pull", "--lab", contract))
	if a := run(t.Context(), "images", "pull", "--json", "--lab", contract); a.err != nil || a.out != "" {
		t.Errorf("with --json: %q, %v", a.out, a.err)
	}
}
