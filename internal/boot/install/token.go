package install

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
)

// maxTokens is how many tokens one boot may have: the daemon would have to die as often within its first seconds.
const maxTokens = 4

// A sum stands for a token in the store: who reads a backup of it cannot read documents with it. A token has 128 random
// bits, so that a plain hash is as good as any.
type sum string

func sumOf(token string) sum {
	h := sha256.Sum256([]byte(token))
	return sum(hex.EncodeToString(h[:]))
}

// knows reports, in constant time, whether token is one of this boot; an empty one never is.
func (s Status) knows(token string) bool {
	got, found := []byte(sumOf(token)), 0
	for _, want := range s.Tokens {
		found |= subtle.ConstantTimeCompare([]byte(want), got)
	}
	return token != "" && found == 1
}

// withToken returns s with one more token.
func (s Status) withToken(token string) Status {
	s.Tokens = append(slices.Clone(s.Tokens), sumOf(token))
	s.Tokens = s.Tokens[max(0, len(s.Tokens)-maxTokens):]
	return s
}
