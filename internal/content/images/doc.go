// Package images fetches the kernels, disks and images that a lab names in images:, and reports which are present.
//
// It owns what a stream metadata document says (Fedora CoreOS, RHCOS), resuming of what broke off, and the rule that a file
// is seen under its name only when its checksum is right. Files of one stream appear together, since they fit only each
// other. It serves nothing, and knows of the lab only what an image is.
//
//	items, wrong := images.Items(ctx, l, images.Fetch(http.DefaultClient))
//	results := images.Pull(ctx, images.Config{Dir: l.Appliance.Files, Parallel: 4}, items, &images.Progress{})
//	states := images.Check(ctx, l.Appliance.Files, items)   // reads every file
package images
