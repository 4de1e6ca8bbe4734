package conformance

import (
	"cmp"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// knownFailures are cases of h2spec that fail, with the reason. A case that passes must be removed here.
var knownFailures = map[string]string{
	"http2/6.5.3/1":   "net/http takes a parameter that is in one SETTINGS frame twice for an error",
	"http2/8.1.2.2/1": "net/http answers 400, as RFC 9113 section 8.1.1 permits, instead of resetting the stream",
	"http2/8.1.2.2/2": "the same",
}

// knownClear are those without TLS.
var knownClear = map[string]string{
	"http2/3.5/2": "the address serves HTTP/1.1 too: what is no preface of HTTP/2 is answered 400 in HTTP/1.1",
}

// TestH2spec runs h2spec, strictly, with TLS and without, with an HTTP/1.1 backend and an HTTP/2 one. It prints through a global
// variable, so only one runs at a time.
func TestH2spec(t *testing.T) {
	t.Parallel()
	back := origin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "h2spec needs an answer that has a body of some length")
	}))
	clear, clear2, secure := balancer("h2c", back), balancer("h2c-h2c", back), balancer("h2", back)
	clear2.Protocol = lab.BackendH2C
	path, _ := certificate(t, "h2spec.test", listenOf(secure))
	secure.Certificates = []string{path}
	serve(t, clear, clear2, secure)
	for _, b := range []*lab.Balancer{clear, clear2, secure} {
		t.Run(b.Name, func(t *testing.T) {
			c := &config.Config{
				Host: b.Listen[0].Addr.String(), Port: int(b.Listen.Port()), Path: "/", Timeout: 10 * time.Second, MaxHeaderLen: 4000, Strict: true,
				TLS: len(b.Certificates) > 0, Insecure: true,
			}
			total := 0
			for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
				group.Test(c)
				total += report(t, group, c.TLS)
			}
			if total < 140 {
				t.Errorf("%d cases were run, want 140 at least", total)
			}
		})
	}
}

// report reports the cases of a group that failed. It returns how many were run.
func report(t *testing.T, group *spec.TestGroup, secure bool) (total int) {
	t.Helper()
	for i, test := range append(append([]*spec.TestCase(nil), group.Tests...), group.StrictTests...) {
		r := test.Result
		if r == nil {
			continue
		}
		total++
		id := group.ID() + "/" + strconv.Itoa(i+1)
		known := knownFailures[id]
		if !secure {
			known = cmp.Or(known, knownClear[id])
		}
		switch {
		case r.Failed && known == "":
			t.Errorf("%s %s: %v", id, test.Desc, r.Error)
		case !r.Failed && known != "":
			t.Errorf("%s %s passes: remove it from the known failures", id, test.Desc)
		}
	}
	for _, child := range group.Groups {
		total += report(t, child, secure)
	}
	return total
}
