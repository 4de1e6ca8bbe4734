package recipe

import (
	"crypto/sha256"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/syntax"
)

// A judged set remembers what was found wrong with documents, or that nothing was, so that a document for 10,000 hosts is
// validated about once: Ignition's library takes milliseconds for each. Two documents are one to it if they differ only in
// what belongs to their hosts.
type judged struct {
	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]*syntax.Error // nil: good
}

// maxJudged bounds what is remembered; then it begins anew.
const maxJudged = 4096

// signature returns what stands for a rendered document of d's host: a hash in which the host's own names, addresses and URLs
// are all the same. What comes from Vars stays as it is: it may be anything.
func (d Data) signature(file string, body []byte) [sha256.Size]byte {
	var pairs []string
	for _, own := range []string{
		d.ConfigURL, d.DoneURL, d.DocumentsURL, d.Host.FQDN, d.Host.MAC.Hyphens(), d.Host.MAC.String(), d.Host.IP.text(), d.Host.IP6.text(),
		string(d.Host.Serial), d.Host.Name,
	} {
		if own != "" {
			pairs = append(pairs, own, unset) // a byte that no document holds
		}
	}
	return sha256.Sum256([]byte(file + unset + strings.NewReplacer(pairs...).Replace(string(body))))
}

// verdict returns what judge says, or said before of a document with this signature.
func (j *judged) verdict(signature [sha256.Size]byte, judge func() *syntax.Error) *syntax.Error {
	j.mu.Lock()
	v, known := j.verdicts[signature]
	j.mu.Unlock()
	if known {
		return v
	}
	v = judge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.verdicts == nil || len(j.verdicts) >= maxJudged {
		j.verdicts = map[[sha256.Size]byte]*syntax.Error{}
	}
	j.verdicts[signature] = v
	return v
}
