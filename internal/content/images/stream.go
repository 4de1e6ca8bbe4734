package images

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// An Item is one file that a lab wants below its files folder.
type Item struct {
	Path   string   `json:"path"`   // slash-separated, below the folder
	URLs   []string `json:"urls"`   // that hold the same file
	SHA256 string   `json:"sha256"` // 64 hexadecimal digits, lower case
	Image  string   `json:"image"`  // the key of the lab file; items of one image appear together

	document []byte // of a stream, kept beside its files
}

// streamName is the file that describes the other files of a stream.
const streamName = "stream.json"

// maxDocument bounds a stream metadata document; real ones have 100 KiB.
const maxDocument = 8 << 20

// A Source reads the stream metadata document of an image.
type Source func(ctx context.Context, dir string, i *lab.Image) ([]byte, error)

// ErrNotPulled is that a stream's document was not fetched yet.
var ErrNotPulled = errors.New("not pulled yet")

// Saved reads the documents that the last pull left beside the files: it makes no request.
func Saved(_ context.Context, dir string, i *lab.Image) ([]byte, error) {
	b, err := regular.Read(filepath.Join(dir, filepath.FromSlash(i.Path), streamName), maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotPulled
	}
	return b, err
}

// Fetch reads documents from where the lab says: a URL, or a file.
func Fetch(client *http.Client) Source {
	return func(ctx context.Context, _ string, i *lab.Image) ([]byte, error) {
		if filepath.IsAbs(i.Stream) {
			return regular.Read(i.Stream, maxDocument)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.Stream, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("get %s: %s", lab.Redacted(i.Stream), resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
		if err == nil && len(b) > maxDocument {
			err = fmt.Errorf("get %s: larger than %d MiB", lab.Redacted(i.Stream), maxDocument>>20)
		}
		return b, err
	}
}

// An ImageError is what is wrong with the document of one image.
type ImageError struct {
	Image string // the key of the lab file
	Err   error
}

// Error implements error.
func (e *ImageError) Error() string { return "images." + e.Image + ": " + e.Err.Error() }

// Unwrap implements errors.
func (e *ImageError) Unwrap() error { return e.Err }

// Items returns the files that the lab's images consist of, in the order of the lab. What one image's document has wrong
// is an error of that image; the items of the others are returned all the same.
func Items(ctx context.Context, l *lab.Lab, source Source) (items []Item, errs []*ImageError) {
	for _, i := range l.Images {
		if i.Stream == "" {
			items = append(items, Item{Path: i.Path, URLs: i.URLs, SHA256: i.SHA256, Image: i.Path})
			continue
		}
		doc, err := source(ctx, l.Appliance.Files, i)
		if err == nil {
			var more []Item
			more, err = parseStream(doc, i)
			items = append(items, more...)
		}
		if err != nil {
			errs = append(errs, &ImageError{i.Path, err})
		}
	}
	return items, errs
}

// A document is what we need of a stream metadata document.
type document struct {
	Architectures map[string]struct {
		Artifacts map[string]struct {
			Formats map[string]map[string]struct {
				Location string `json:"location"`
				SHA256   string `json:"sha256"`
			} `json:"formats"`
		} `json:"artifacts"`
	} `json:"architectures"`
}

var partName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// parseStream returns the files of one artifact in one format: kernel, initramfs and rootfs of pxe, disk of all others.
func parseStream(text []byte, i *lab.Image) ([]Item, error) {
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("not a stream metadata document: %w", err)
	}
	arch, ok := doc.Architectures[i.Arch]
	if !ok {
		return nil, lacks("architecture", i.Arch, maps.Keys(doc.Architectures))
	}
	artifact, ok := arch.Artifacts[i.Artifact]
	if !ok {
		return nil, lacks("artifact", i.Artifact, maps.Keys(arch.Artifacts))
	}
	parts, ok := artifact.Formats[i.Format]
	if !ok || len(parts) == 0 {
		return nil, lacks("format", i.Format, maps.Keys(artifact.Formats))
	}
	var items []Item
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		p := parts[name]
		switch {
		case !partName.MatchString(name) || name == streamName:
			return nil, fmt.Errorf("the document has a file called %q", name)
		case !isSHA256(p.SHA256):
			return nil, fmt.Errorf("the document has no sha256 of %s", name)
		case !lab.IsWeb(p.Location):
			return nil, fmt.Errorf("the document has %q as the location of %s: want an http or https URL", p.Location, name)
		}
		items = append(items, Item{
			Path: path.Join(i.Path, name), URLs: []string{p.Location}, SHA256: strings.ToLower(p.SHA256), Image: i.Path, document: text,
		})
	}
	return items, nil
}

func lacks(what, name string, all func(func(string) bool)) error {
	return fmt.Errorf("the document has no %s %q: want one of %s", what, name, strings.Join(slices.Sorted(all), ", "))
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}
