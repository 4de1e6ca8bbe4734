package load

import (
	"io/fs"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

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
			r.fail(s, key+"."+name, "stands beside stream (%s), which tells both: want one of the two", r.pos(raw.Stream.spot))
		}
	}
	i.Stream = string(raw.Stream.or(""))
	if !strings.Contains(i.Stream, "://") {
		i.Stream = r.path(i.Stream)
	} else if err := new(weblink).parse(i.Stream); err != nil {
		r.fail(raw.Stream.spot, key+".stream", "%v", err)
	}
	i.Arch, i.Artifact, i.Format = string(raw.Arch.or("x86_64")), string(raw.Artifact.or("metal")), string(raw.Format.or("pxe"))
	return i
}

// imageFile is an image that is one file.
func (r *resolver) imageFile(e *entry[rawImage], i *lab.Image, key string) {
	raw := &e.V
	i.URLs = values(raw.URL.scalars, func(u weblink) string { return string(u) })
	i.SHA256 = string(raw.SHA256.or(""))
	if len(raw.URL.Items) == 0 {
		r.fail(e.spot, key, "comes from nowhere: want url and sha256, or stream")
		return
	}
	if !raw.SHA256.set() {
		r.fail(e.spot, key+".sha256", "is missing: want the SHA-256 of the file, 64 hexadecimal digits")
	}
	for name, s := range map[string]spot{"arch": raw.Arch.spot, "artifact": raw.Artifact.spot, "format": raw.Format.spot} {
		if s.set() {
			r.fail(s, key+"."+name, "chooses from a stream, and there is none: want stream instead of url, or leave it out")
		}
	}
}
