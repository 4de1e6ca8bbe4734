package recipe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A MirrorData is one of the lab's mirrors as a host reaches it.
type MirrorData struct {
	URL  string // "http://192.168.16.1:8080/mirror/debian", no final slash
	Host string // "192.168.16.1:8080", for installers that want host and folder apart
	Path string // "/mirror/debian"
}

// Mirror returns how the host reaches that mirror: {{(.Mirror "debian").Host}}. One that the lab does not have is an error.
func (d Data) Mirror(name string) (MirrorData, error) {
	if !slices.ContainsFunc(d.mirrors, func(m *lab.Mirror) bool { return m.Name == name }) {
		return MirrorData{}, fmt.Errorf("mirror %q is not in the lab: want one of its mirrors (%s)", name, mirrorNames(d.mirrors))
	}
	m := MirrorData{Path: "/" + lab.PathMirror + name}
	if d.network != nil {
		m.URL, m.Host = d.network.MirrorURL(name), strings.TrimPrefix(d.network.BaseURL, "http://")
	}
	return m, nil
}

// MirrorURL returns where the host reaches that mirror, without a final slash: {{.MirrorURL "debian"}}.
func (d Data) MirrorURL(name string) (string, error) {
	m, err := d.Mirror(name)
	return m.URL, err
}

func mirrorNames(ms []*lab.Mirror) string {
	if len(ms) == 0 {
		return "it has none"
	}
	names := make([]string, len(ms))
	for i, m := range ms {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}
