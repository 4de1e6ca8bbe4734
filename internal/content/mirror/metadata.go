package mirror

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/replace"
)

// A head is the part of an upstream's response header that is kept.
type head struct {
	Size         int64  `json:"size"` // -1: unknown
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	Type         string `json:"type,omitempty"`
	Encoding     string `json:"encoding,omitempty"`
}

func headOf(r *http.Response) head {
	h := head{
		Size: r.ContentLength, ETag: r.Header.Get("Etag"), LastModified: r.Header.Get("Last-Modified"),
		Type: r.Header.Get("Content-Type"), Encoding: r.Header.Get("Content-Encoding"),
	}
	if !validETag(h.ETag) {
		h.ETag = ""
	}
	if h.modTime().IsZero() {
		h.LastModified = ""
	}
	return h
}

// modTime returns the zero time where upstream sends no valid Last-Modified.
func (h head) modTime() time.Time {
	t, err := http.ParseTime(h.LastModified)
	if err != nil {
		return time.Time{}
	}
	return t
}

// validator returns the value of If-Range for this file; empty: it has none. A weak ETag does not
// (RFC 9110, section 13.1.5).
func (h head) validator() string {
	if strong(h.ETag) {
		return h.ETag
	}
	return h.LastModified
}

// differs reports whether another answer is of another version of the file, by a strong ETag if both have one, else by what both have: servers
// of one archive may have other dates, and a part may lack either (RFC 9110 section 15.3.7).
func (h head) differs(o head) bool {
	other := func(a, b string) bool { return a != "" && b != "" && a != b }
	if strong(h.ETag) && o.ETag != "" {
		return h.ETag != o.ETag
	}
	return other(h.ETag, o.ETag) || other(h.LastModified, o.LastModified)
}

func strong(etag string) bool { return etag != "" && !strings.HasPrefix(etag, "W/") }

// conditions returns the header of a conditional request.
func (h head) conditions() http.Header {
	header := http.Header{}
	if h.ETag != "" {
		header.Set("If-None-Match", h.ETag)
	}
	if h.LastModified != "" {
		header.Set("If-Modified-Since", h.LastModified)
	}
	return header
}

// validETag reports whether s is an entity tag by RFC 9110, section 8.8.3.
func validETag(s string) bool {
	opaque, ok := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"`)
	opaque, quoted := strings.CutSuffix(opaque, `"`)
	return ok && quoted && !strings.ContainsFunc(opaque, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f })
}

// Metadata is what is known of a file that is kept. It stands beside the file as JSON, is written last, and a file without
// one is nothing.
type metadata struct {
	head
	Path     string    `json:"path"`
	Upstream string    `json:"upstream"` // the base URL it came from
	Checked  time.Time `json:"checked"`  // when upstream last confirmed the file
}

func readMetadata(name string) (l metadata, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("metadata %s: %w", name, err)
	}
	if l.Size < 0 || l.Path == "" {
		return l, fmt.Errorf("metadata %s is incomplete", name)
	}
	return l, nil
}

// write replaces the metadata at name.
func (l metadata) write(name string) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return replace.Cached(name, 0o640, replace.With(b)) // one that cannot be read removes the file from the cache
}
