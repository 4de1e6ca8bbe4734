package load_test

import (
	"strings"
	"testing"
)

// TestUnreachedBackends: a balancer that redirects everything warns of its backends.
func TestUnreachedBackends(t *testing.T) {
	t.Parallel()
	for keys, warns := range map[string]bool{
		"redirect: https, backends: [10.1.2.9]":                      true,
		"redirect: https, match: {path: [/a]}, backends: [10.1.2.9]": true,
		"redirect: https":      false,
		"backends: [10.1.2.9]": false,
		"redirect: https, trusted_proxies: [10.1.2.8], backends: [10.1.2.9]":          false,
		"redirect: https, tls: {certificates: [/none/web.pem]}, backends: [10.1.2.9]": false,
	} {
		l := parse(t, "balancers: {b: {listen: '10.1.2.1:80', mode: http, "+keys+"}}\n")
		if got := l.Warnings.Error(); strings.Contains(got, "balancers.b.redirect: every request without TLS is redirected, so that the backends are never used") != warns {
			t.Errorf("%s: warnings %q, want one: %v", keys, got, warns)
		}
	}
}
