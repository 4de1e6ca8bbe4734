package lab

import (
	"slices"
	"time"
)

// A Mirror is an upstream archive that the appliance caches for machines.
type Mirror struct {
	Pos       Pos
	Name      string
	URLs      []string      // upstreams that hold the same files, without a final slash; at least one
	MaxSize   Size          // of the cache
	Allow     []Pattern     // of paths; nil: all
	Immutable []Pattern     // of paths whose content never changes, in addition to the built-in ones
	Fresh     time.Duration // how long any other file is served without revalidation
}

// Allows reports whether a path, without a slash in front, may be fetched.
func (m *Mirror) Allows(path string) bool {
	return len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, func(p Pattern) bool { return p.Match([]byte(path)) })
}

// An Image is what bootlab images pull fetches: one file from URLs, or the files of a stream's artifact, below Path.
type Image struct {
	Pos    Pos
	Path   string // slash-separated, below Appliance.Files: of the file, or of the folder of a stream's files
	URLs   []string
	SHA256 string // 64 hexadecimal digits, lower case; with URLs
	Stream string // URL, or absolute path; empty: URLs
	// Arch, Artifact and Format choose from the stream.
	Arch, Artifact, Format string
}
