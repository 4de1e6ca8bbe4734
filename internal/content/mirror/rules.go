package mirror

import (
	"crypto/md5"  //nolint:gosec // of archives that offer nothing better: it finds accidents, not attacks
	"crypto/sha1" //nolint:gosec // the same
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// immutable reports whether the content of a path never changes, so that it need not be revalidated.
func immutable(m *lab.Mirror, p string) bool {
	switch path.Ext(p) {
	case ".deb", ".udeb", ".ddeb", ".rpm", ".drpm", ".apk":
		return true
	}
	slashed := "/" + p
	if strings.Contains(slashed, "/pool/") || strings.Contains(slashed, "/by-hash/") || checksumOfPath(p).known() {
		return true
	}
	return slices.ContainsFunc(m.Immutable, func(i lab.Pattern) bool { return i.Match([]byte(p)) })
}

// A checksum is the one that a complete file must have. The zero checksum means that none is known.
type checksum struct {
	new func() hash.Hash
	sum string // the bytes
}

func (e checksum) known() bool { return e.new != nil }

// checksumOf returns the strongest checksum of the path or the response header.
func checksumOf(p string, h http.Header) checksum {
	if e := checksumOfPath(p); e.known() {
		return e
	}
	if h.Get("Content-Encoding") != "" {
		return checksum{} // Repr-Digest is then of the decoded bytes
	}
	for _, name := range []string{"Repr-Digest", "Content-Digest", "Digest"} {
		if e := checksumOfHeader(h.Get(name)); e.known() {
			return e
		}
	}
	return checksum{}
}

// checksumOfPath understands by-hash/ALGORITHM/HEX of Debian's archives and repodata/HEX-name of createrepo.
func checksumOfPath(p string) checksum {
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case path.Base(path.Dir(dir)) == "by-hash":
		return checksumOfHex(path.Base(dir), name)
	case path.Base(dir) == "repodata":
		sum, _, ok := strings.Cut(name, "-")
		if alg := map[int]string{64: "SHA256", 128: "SHA512"}[len(sum)]; ok && alg != "" {
			return checksumOfHex(alg, sum)
		}
	}
	return checksum{}
}

func checksumOfHex(alg, sum string) checksum {
	b, err := hex.DecodeString(sum)
	if err != nil {
		return checksum{}
	}
	return newChecksum(alg, b)
}

// checksumOfHeader reads a digest field: RFC 9530's "sha-256=:BASE64:", or RFC 3230's "SHA-256=BASE64", with commas between.
func checksumOfHeader(field string) (best checksum) {
	for item := range strings.SplitSeq(field, ",") {
		alg, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		value, _, _ = strings.Cut(value, ";") // parameters
		value = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(value), ":"), ":")
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			continue
		}
		if e := newChecksum(strings.ReplaceAll(strings.ToUpper(alg), "-", ""), b); e.known() && len(e.sum) > len(best.sum) {
			best = e
		}
	}
	return best
}

// newChecksum returns none for an unknown algorithm or a sum of the wrong length.
func newChecksum(alg string, sum []byte) checksum {
	makers := map[string]func() hash.Hash{"SHA512": sha512.New, "SHA256": sha256.New, "SHA1": sha1.New, "SHA": sha1.New, "MD5SUM": md5.New, "MD5": md5.New}
	make := makers[alg]
	if make == nil || make().Size() != len(sum) {
		return checksum{}
	}
	return checksum{new: make, sum: string(sum)}
}
