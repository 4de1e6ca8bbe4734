package openshift

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// FuzzDocument: no document ends the process, and one that is accepted renders as a template to what it was.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"ignition":{"config":{"merge":[{"source":"https://api-int.a.b:22623/config/master"}]},"version":"3.2.0"}}`))
	f.Add([]byte(`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/opt/openshift/manifests/cluster-config.yaml","contents":{"source":"data:,data%3A%20{install-config:%20x}"}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Installation{Documents: map[string][]byte{}, apiInt: map[string]string{}, masters: -1, workers: -1}
		if s.document("master.ign", text) != nil {
			return
		}
		if c, r := s.Check(&lab.Lab{}, time.Time{}); c != nil || len(r.Errors) == 0 {
			t.Errorf("fits a lab without clusters: %v", r)
		}
		if back := strings.ReplaceAll(string(AsTemplate(text)), `{{"{{"}}`, "{{"); back != string(text) {
			t.Errorf("%q becomes %q", text, back)
		}
	})
}
