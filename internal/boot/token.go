package boot

import "regexp"

// token matches what may be the one-time token of a boot (crypto/rand.Text).
var token = regexp.MustCompile(`(?i)[A-Z2-7]{26,}`)

// RedactTokens removes what may be a token from the path of a request that leads nowhere: it may be a document's, misspelled, or asked
// for by TFTP.
func RedactTokens(path string) string { return token.ReplaceAllString(path, "…") }
