package mirror

import (
	"crypto/md5"  //nolint:gosec // of archives that know nothing better: it finds accidents, not attacks
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

// immutable reports whether the content of a path belongs to its name, so that upstream need not be asked again.
func immutable(m *lab.Mirror, p string) bool {
	switch path.Ext(p) {
	case ".deb", ".udeb", ".ddeb", ".rpm", ".drpm", ".apk":
		return true
	}
	slashed := "/" + p
	if strings.Contains(slashed, "/pool/") || strings.Contains(slashed, "/by-hash/") || expectOfPath(p).known() {
		return true
	}
	return slices.ContainsFunc(m.Immutable, func(i lab.Pattern) bool { return i.Match([]byte(p)) })
}

// An expectation is the checksum that a whole file must have. The zero expectation is that nothing is known.
type expectation struct {
	new func() hash.Hash
	sum string // the bytes
}

func (e expectation) known() bool { return e.new != nil }

// expectOf returns the strongest checksum that the path or the answer's header tells.
func expectOf(p string, h http.Header) expectation {
	if e := expectOfPath(p); e.known() {
		return e
	}
	if h.Get("Content-Encoding") != "" {
		return expectation{} // Repr-Digest is then of bytes that we do not see
	}
	for _, name := range []string{"Repr-Digest", "Content-Digest", "Digest"} {
		if e := expectOfHeader(h.Get(name)); e.known() {
			return e
		}
	}
	return expectation{}
}

// expectOfPath knows by-hash/ALGORITHM/HEX of Debian's archives and repodata/HEX-name of createrepo.
func expectOfPath(p string) expectation {
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case path.Base(path.Dir(dir)) == "by-hash":
		return expectHex(path.Base(dir), name)
	case path.Base(dir) == "repodata":
		sum, _, ok := strings.Cut(name, "-")
		if alg := map[int]string{64: "SHA256", 128: "SHA512"}[len(sum)]; ok && alg != "" {
			return expectHex(alg, sum)
		}
	}
	return expectation{}
}

func expectHex(alg, sum string) expectation {
	b, err := hex.DecodeString(sum)
	if err != nil {
		return expectation{}
	}
	return expect(alg, b)
}

// expectOfHeader reads a digest field: RFC 9530's "sha-256=:BASE64:", or RFC 3230's "SHA-256=BASE64", with commas between.
func expectOfHeader(field string) (best expectation) {
	for item := range strings.SplitSeq(field, ",") {
		alg, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		value, _, _ = strings.Cut(value, ";") // parameters
		value = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(value), ":"), ":")
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			continue
		}
		if e := expect(strings.ReplaceAll(strings.ToUpper(alg), "-", ""), b); e.known() && len(e.sum) > len(best.sum) {
			best = e
		}
	}
	return best
}

// expect returns nothing for an algorithm that is not known, or a sum that is not as long as it should be.
func expect(alg string, sum []byte) expectation {
	makers := map[string]func() hash.Hash{"SHA512": sha512.New, "SHA256": sha256.New, "SHA1": sha1.New, "SHA": sha1.New, "MD5SUM": md5.New, "MD5": md5.New}
	make := makers[alg]
	if make == nil || make().Size() != len(sum) {
		return expectation{}
	}
	return expectation{new: make, sum: string(sum)}
}
