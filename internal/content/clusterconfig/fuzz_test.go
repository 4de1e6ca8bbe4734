package clusterconfig

import (
	"os"
	"path/filepath"
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
		s := newOpenShift()
		if s.document("master.ign", text) != nil {
			return
		}
		if c, r := s.Check(&lab.Lab{}, time.Time{}); c != nil || len(r.Errors) == 0 {
			t.Errorf("fits a lab without clusters: %v", r)
		}
		if back := strings.ReplaceAll(string(asTemplate(text)), `{{"{{"}}`, "{{"); back != string(text) {
			t.Errorf("%q becomes %q", text, back)
		}
	})
}

// FuzzYAML: no machine configuration and no configuration of kubeadm ends the process, and none fits a lab without clusters.
func FuzzYAML(f *testing.F) {
	f.Add([]byte("machine: {type: worker, install: {disk: /dev/sda}}\ncluster: {clusterName: a, controlPlane: {endpoint: 'https://a:6443'}}\n---\nkind: HostnameConfig\n"))
	f.Add([]byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {bootstrapToken: {apiServerEndpoint: 'a:6443', token: &t x, tls: *t}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "worker.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		fits := func(s Set) {
			if c, r := s.Check(&lab.Lab{}, time.Time{}); c != nil || len(r.Errors) == 0 {
				t.Errorf("fits a lab without clusters: %v", r)
			}
		}
		if s, err := ReadTalos(dir); err == nil {
			fits(s)
		}
		if s, err := ReadKubeadm(dir); err == nil {
			fits(s)
		}
	})
}
