package mirror

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestImmutable(t *testing.T) {
	t.Parallel()
	iso, err := lab.ParsePattern("*.iso")
	if err != nil {
		t.Fatal(err)
	}
	m := &lab.Mirror{Immutable: []lab.Pattern{iso}}
	hash := strings.Repeat("ab", 32)
	for path, want := range map[string]bool{
		"pool/main/h/hello/hello_1.orig.tar.gz": true, "debian/pool/x": true, "x/y.rpm": true, "a.udeb": true, "v3/main/x86_64/a-1.apk": true,
		"dists/stable/main/binary-amd64/by-hash/SHA256/" + hash: true, "os/repodata/" + hash + "-primary.xml.gz": true, "images/x.iso": true,
		"dists/stable/InRelease": false, "dists/stable/main/binary-amd64/Packages.xz": false, "os/repodata/repomd.xml": false,
		"poolside/x": false, "images/latest.img": false, "a.deb/Release": false,
	} {
		if got := immutable(m, path); got != want {
			t.Errorf("%s: immutable %t, want %t", path, got, want)
		}
	}
}

// FuzzDigest asserts that whatever a header holds, what is expected of it is a sum as long as its algorithm makes, and one
// of those that stand there.
func FuzzDigest(f *testing.F) {
	for _, seed := range []string{
		"sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:", "SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=,md5=1B2M2Y8AsgTpgAmY7PhCfg==",
		"sha-512=:z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==:, sha-256=:x:", "sha-256=::", "=", "md5", ",,;",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		e := checksumOf("pool/x.deb", http.Header{"Repr-Digest": {field}})
		if !e.known() {
			return
		}
		if len(e.sum) != e.new().Size() || !strings.Contains(field, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(e.sum)), "=")[:8]) {
			t.Fatalf("%q: expects %x", field, e.sum)
		}
	})
}
