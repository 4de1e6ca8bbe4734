package lab

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Missing returns the warning that holds while a file does not exist that the lab names.
func (l *Lab) Missing(f FileAt) *Problem {
	advice := "machines that need it get an error until it exists"
	switch {
	case l.pulled(f.Path):
		advice = "bootlab images pull fetches it"
	case strings.HasPrefix(f.Key, "images."):
		advice = "bootlab images pull needs it: write it with openshift-install coreos print-stream-json, or have bootlab openshift prepare put it there"
	case strings.HasPrefix(f.Key, "balancers."):
		advice = "the balancer answers 503, or refuses TLS, until it exists"
	case strings.HasPrefix(f.Key, "clusters."):
		advice = "until it exists, the bootstrap machine leaves once its own check fails"
	case strings.HasPrefix(f.Key, "redfish."):
		advice = "no client can log in with it until it exists"
		if strings.HasSuffix(f.Key, ".certificate") {
			advice = "no client can connect until it exists"
		}
	case strings.Contains(f.Key, ".bmc."):
		advice = "the power of its machines cannot be controlled until it exists"
	}
	return &Problem{Pos: f.Pos, Key: f.Key, Message: fmt.Sprintf("%s: file not found; %s", f.Path, advice), Path: f.Path}
}

// pulled reports whether an entry of images provides the file.
func (l *Lab) pulled(name string) bool {
	return slices.ContainsFunc(l.Images, func(i *Image) bool {
		at := filepath.Join(l.Appliance.Files, filepath.FromSlash(i.Path))
		return name == at || strings.HasPrefix(name, at+string(filepath.Separator))
	})
}
