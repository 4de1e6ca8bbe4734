package load_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestStreamFile: a document that an image is fetched by is missed until the image is there.
func TestStreamFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, stream string
		there        string // the end of the path that exists
		warns        bool
	}{
		{"missing", "rhcos.json", "", true},
		{"there", "rhcos.json", "/etc/bootlab/rhcos.json", false},
		{"image pulled", "rhcos.json", "/images/rhcos", false},
		{"from the web", "https://builds.example/stable.json", "", false},
	} {
		exists := func(name string) bool { return tt.there != "" && strings.HasSuffix(name, tt.there) }
		l, err := load.Parse("/etc/bootlab/lab.yaml", []byte(head+"images: {images/rhcos: {stream: \""+tt.stream+"\"}}\n"), load.Options{FileExists: exists})
		if err != nil {
			t.Fatal(err)
		}
		const want = "images.images/rhcos.stream: /etc/bootlab/rhcos.json: file not found; bootlab images pull needs it"
		if got := l.Warnings.Error(); strings.Contains(got, want) != tt.warns || tt.warns != (got != "") {
			t.Errorf("%s: warnings %q", tt.name, got)
		}
	}
}
