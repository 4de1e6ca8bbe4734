package httpd

import (
	"net/http"
	"net/url"
	"strings"
)

// fromOtherPage reports whether a request that may change something comes from a page of another site. Browsers say so by Sec-Fetch-Site or
// Origin, which http.CrossOriginProtection checks; for want of both, by Referer.
func fromOtherPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	referer := r.Header.Get("Referer")
	if referer == "" || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	u, err := url.Parse(referer)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}
