package httpd

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/replace"
)

const minToken = 16

// LoadToken returns the token kept in the file path, which it makes, readable to its owner alone, where there is none. A
// file that anybody may read holds no secret and is refused.
func LoadToken(path string) (string, error) {
	token, err := readToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeToken(path); err != nil {
			return "", fmt.Errorf("make token %s: %w", path, err)
		}
		token, err = readToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("read token %s: %w", path, err)
	}
	return token, nil
}

// CheckToken returns why LoadToken would refuse the file path; nil: it would not, or would make the file.
func CheckToken(path string) error {
	if _, err := readToken(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// A badToken is a file that holds no token.
type badToken struct{ problem, fix string }

// Error returns the problem and the fix.
func (t *badToken) Error() string { return t.problem + ": " + t.fix }

// Unwrap returns the problem alone.
func (t *badToken) Unwrap() error { return errors.New(t.problem) }

// Fix returns what to do.
func (t *badToken) Fix() string { return t.fix }

// NewToken replaces the token kept in the file path by a new one, which it returns once it is on disk.
func NewToken(path string) (string, error) {
	token := randomToken()
	err := replace.File(path, 0o600, replace.With([]byte(token+"\n")))
	if err != nil {
		return "", fmt.Errorf("replace token %s: %w", path, err)
	}
	return token, nil
}

func randomToken() string { return rand.Text() + rand.Text() }

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", &badToken{"it is no regular file", "remove it and a new one is made"}
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return "", &badToken{fmt.Sprintf("anybody may read or change it (mode %#o)", mode), "chmod 600 it, or delete it if it was seen"}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", &badToken{fmt.Sprintf("%d characters are too few, want %d", len(token), minToken), "delete the file and a new one is made"}
	}
	return token, nil
}

// makeToken writes a token under another name first: two daemons that start at once agree on one, and a crash leaves none
// or a whole one.
func makeToken(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString(randomToken() + "\n"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// keys are the token and what is derived from it.
type keys struct {
	token  string
	over   context.Context // ends with the token; reads that it admitted end then, too
	end    context.CancelFunc
	cookie string // name of the cookie of a session; of this daemon alone, because cookies do not tell ports apart
}

func newKeys(token string) *keys {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("cookie"))
	k := &keys{token: token, cookie: "bootlab-" + hex.EncodeToString(mac.Sum(nil))[:8]}
	k.over, k.end = context.WithCancel(context.Background())
	return k
}

// isToken compares in constant time, whatever the lengths.
func (k *keys) isToken(s string) bool {
	x, y := sha256.Sum256([]byte(s)), sha256.Sum256([]byte(k.token))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearer returns the token that a request shows in its header.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// session returns the cookie of the session that a request shows; empty: none.
func (k *keys) session(r *http.Request) string {
	c, err := r.Cookie(k.cookie)
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie gives the browser that sent r the cookie of a session, for as long as it runs.
func (k *keys) setCookie(w http.ResponseWriter, r *http.Request, session string) {
	http.SetCookie(w, &http.Cookie{Name: k.cookie, Value: session, Path: "/", HttpOnly: true, Secure: byHTTPS(r), SameSite: http.SameSiteStrictMode})
}

func (k *keys) clearCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: k.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: byHTTPS(r), SameSite: http.SameSiteStrictMode})
}

// byHTTPS reports whether the browser used HTTPS, as a proxy in front says; of several proxies the first. Anyone's word will do for this, and
// for nothing else: it only makes the cookie of the one who says so stricter.
func byHTTPS(r *http.Request) bool {
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return strings.EqualFold(strings.TrimSpace(proto), "https")
}
