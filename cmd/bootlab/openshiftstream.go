package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/content/images"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// streamNames are what people call the stream metadata of a release, beside the documents.
var streamNames = []string{"stream.json", "rhcos.json", "coreos-stream.json"}

// streamAdvice is how to get it.
const streamAdvice = "openshift-install coreos print-stream-json > rhcos.json, and --stream rhcos.json"

// stream checks the release's stream metadata, given by name or found in the folder, against the images that the cluster's profiles boot, and
// puts it where they read it. So the images that are pulled are those of the release.
func (p *prepare) stream(v *prepared, l *lab.Lab, c *lab.Cluster, name string) {
	for _, usual := range streamNames {
		if at := filepath.Join(p.dir, usual); name == "" && exists(at) {
			name = at
		}
	}
	pulled := imagesOf(l, c)
	if name == "" {
		if len(pulled) > 0 && !slices.ContainsFunc(pulled, func(i *lab.Image) bool { return exists(i.Stream) }) {
			v.warn("%s", "which CoreOS the release boots is not known: "+streamAdvice)
		}
		if slices.ContainsFunc(pulled, func(i *lab.Image) bool { return filepath.IsAbs(i.Stream) && !exists(i.Stream) }) {
			v.pullFirst = "openshift-install coreos print-stream-json > " + filepath.Join(p.dir, "rhcos.json")
		}
		return
	}
	text, err := regular.Read(name, regular.Small)
	if err != nil {
		v.fail("%v", err)
		return
	}
	if len(pulled) == 0 && !p.noImages { // placed by hand
		v.warn("the images of %s are not pulled: no image of the lab is for cluster %s; want images: {images/rhcos: {stream: %[1]s}}, and kernel: "+
			"images/rhcos/kernel, initrd: [images/rhcos/initramfs], rootfs: images/rhcos/rootfs in the profile", filepath.Base(name), c.Name)
	}
	for _, i := range pulled {
		v.streamOf(l, i, filepath.Base(name), text)
	}
}

// streamOf checks the stream metadata against one image. An image by URL must be a file of the stream.
func (v *prepared) streamOf(l *lab.Lab, i *lab.Image, name string, text []byte) {
	wanted := *i
	if i.Stream == "" {
		wanted.Arch, wanted.Artifact, wanted.Format = "x86_64", "metal", "pxe"
	}
	given := func(context.Context, string, *lab.Image) ([]byte, error) { return text, nil }
	wanted.Stream = name
	items, wrong := images.Items(context.Background(), &lab.Lab{Images: []*lab.Image{&wanted}, Appliance: l.Appliance}, given)
	switch {
	case len(wrong) > 0:
		v.fail("%s: %v", name, wrong[0])
	case i.Stream == "":
		if !slices.ContainsFunc(items, func(x images.Item) bool { return x.SHA256 == i.SHA256 }) {
			v.fail("images.%s is no file of the release's stream: want the sha256 that %s has, or stream: %[2]s", i.Path, name)
		}
	case strings.Contains(i.Stream, "://"):
		v.fail("images.%s follows %s, which is not the release's: want stream: %s", i.Path, i.Stream, name)
	case !slices.ContainsFunc(v.Copies, func(c documentCopy) bool { return c.To == i.Stream }):
		v.Copies = append(v.Copies, documentCopy{From: name, To: i.Stream, text: text})
	}
}

// imagesOf returns the images that the profiles of a cluster's hosts boot.
func imagesOf(l *lab.Lab, c *lab.Cluster) (used []*lab.Image) {
	for _, i := range l.Images {
		boots := func(f lab.ProfilePath) bool { return f.Text == i.Path || strings.HasPrefix(f.Text, i.Path+"/") }
		if slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Profile != nil && slices.ContainsFunc(h.Profile.Paths(), boots) }) {
			used = append(used, i)
		}
	}
	return used
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return name != "" && !errors.Is(err, fs.ErrNotExist)
}
