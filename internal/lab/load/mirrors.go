package load

import (
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// minMirror is the smallest useful size: one package of a distribution.
const minMirror = 1 << 20

func (r *resolver) mirrorList() {
	slab := make([]lab.Mirror, len(r.raw.Mirrors.Entries))
	for i, e := range r.raw.Mirrors.Entries {
		r.identName(e.spot, "mirrors."+e.Name, e.Name)
		slab[i] = r.mirror(e)
		r.lab.Mirrors = append(r.lab.Mirrors, &slab[i])
	}
}

func (r *resolver) mirror(e *entry[either[webURL, rawMirror]]) lab.Mirror {
	key := "mirrors." + e.Name
	m := lab.Mirror{Pos: r.pos(e.spot), Name: e.Name, MaxSize: defaultMirrorSize, Fresh: defaultMirrorFresh}
	raw := e.V.Long
	if raw == nil {
		if e.V.Short.ok() {
			m.URLs = []string{r.upstream(&e.V.Short, key)}
		}
		return m
	}
	for i := range raw.URL.Items {
		if u := &raw.URL.Items[i]; u.ok() {
			m.URLs = append(m.URLs, r.upstream(u, fmt.Sprintf("%s.url[%d]", key, i)))
		}
	}
	if len(raw.URL.Items) == 0 && !raw.URL.bad() {
		r.failMissing(e.spot, key+".url", "is missing: want the upstream's URL, such as http://deb.debian.org/debian")
	}
	same := func(p lab.Pattern) lab.Pattern { return p }
	m.MaxSize = raw.MaxSize.or(defaultMirrorSize)
	m.Allow, m.Immutable = values(raw.Allow.scalars, same), values(raw.Immutable.scalars, same)
	m.Fresh = time.Duration(raw.Fresh.or(span(defaultMirrorFresh)))
	if raw.MaxSize.ok() && m.MaxSize < minMirror {
		r.fail(raw.MaxSize.spot, key+".max_size", "%s is too little for one package: want 1MiB or more", m.MaxSize)
	}
	r.mirrorPaths(raw.Allow.scalars, key+".allow")
	r.mirrorPaths(raw.Immutable.scalars, key+".immutable")
	return m
}

// upstream returns the base of a mirror, without a final slash.
func (r *resolver) upstream(v *scalar[webURL], key string) string {
	u, err := url.Parse(string(v.V))
	if err != nil { // cannot be: it was parsed before
		return ""
	}
	if u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		r.fail(v.spot, key, "%q has a query or a fragment: want the base URL of all paths, such as http://deb.debian.org/debian", v.V)
	}
	return strings.TrimRight(string(v.V), "/")
}

// mirrorPaths reports patterns that no path can match: paths have no slash in front.
func (r *resolver) mirrorPaths(l scalars[lab.Pattern], key string) {
	for i := range l.Items {
		if p := &l.Items[i]; p.ok() && strings.HasPrefix(p.V.String(), "/") {
			r.fail(p.spot, fmt.Sprintf("%s[%d]", key, i), "%q begins with a slash: want a path below url, such as pool/*", p.V)
		}
	}
}

func (r *resolver) imageList() {
	slab := make([]lab.Image, len(r.raw.Images.Entries))
	for i, e := range r.raw.Images.Entries {
		slab[i] = r.image(e)
		r.lab.Images = append(r.lab.Images, &slab[i])
	}
}

func (r *resolver) image(e *entry[rawImage]) lab.Image {
	raw, key := &e.V, "images."+e.Name
	i := lab.Image{Pos: r.pos(e.spot), Path: e.Name}
	if !fs.ValidPath(e.Name) || e.Name == "." || strings.Contains(e.Name, "\\") {
		r.fail(e.spot, key, "%q is not a path below appliance.files: want one such as images/vmlinuz", e.Name)
	}
	if !raw.Stream.set() {
		r.imageFile(e, &i, key)
		return i
	}
	for name, s := range map[string]spot{"url": raw.URL.spot, "sha256": raw.SHA256.spot} {
		if s.set() {
			r.fail(s, key+"."+name, "excludes stream (%s), which provides both: want one of the two", r.pos(raw.Stream.spot))
		}
	}
	i.Stream = string(raw.Stream.or(""))
	if !strings.Contains(i.Stream, "://") {
		i.Stream = r.path(i.Stream)
	} else if err := new(webURL).parse(i.Stream); err != nil {
		r.fail(raw.Stream.spot, key+".stream", "%v", err)
	}
	i.Arch, i.Artifact, i.Format = string(raw.Arch.or("x86_64")), string(raw.Artifact.or("metal")), string(raw.Format.or("pxe"))
	return i
}

// imageFile is an image that is one file.
func (r *resolver) imageFile(e *entry[rawImage], i *lab.Image, key string) {
	raw := &e.V
	i.URLs = values(raw.URL.scalars, func(u webURL) string { return string(u) })
	i.SHA256 = string(raw.SHA256.or(""))
	if len(raw.URL.Items) == 0 {
		switch {
		case raw.URL.bad() || raw.Stream.bad() || r.incomplete[key]: // reported
		case raw.URL.set():
			r.fail(raw.URL.spot, key+".url", "is empty: want a URL, or a list of mirrors")
		default:
			r.fail(e.spot, key, "has no source: want url and sha256, or stream")
		}
		return
	}
	if !raw.SHA256.set() {
		r.fail(e.spot, key+".sha256", "is missing: want the SHA-256 of the file, 64 hexadecimal digits")
	}
	for name, s := range map[string]spot{"arch": raw.Arch.spot, "artifact": raw.Artifact.spot, "format": raw.Format.spot} {
		if s.set() {
			r.fail(s, key+"."+name, "selects from a stream, and there is none: want stream instead of url, or leave it out")
		}
	}
}
