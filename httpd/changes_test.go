package httpd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/httpd"
)

// TestChangeParameters: the API and the dashboard's forms know the same parameters. What is not understood arms no machine.
func TestChangeParameters(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	const form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
	for _, tt := range []struct {
		name, query, kind, body string
		status                  int // of the API; 0: it succeeds
		calls                   string
	}{
		{"nothing", "", "", "", 0, "install master-1"},
		{"done in the URL", "?done=1", "", "", 0, "mark master-1"},
		{"done in the body", "", form, "done=1", 0, "mark master-1"},
		{"not done", "?done=0", "", "", 0, "install master-1"},
		{"done as yes", "?done=yes", "", "", 400, ""},
		{"done as nothing", "?done=", "", "", 400, ""},
		{"now as true", "", form, "now=true", 400, ""},
		{"misspelled", "?don=1", "", "", 400, ""},
		{"misspelled in the body", "", form, "Done=1", 400, ""},
		{"done twice", "?done=1", form, "done=0", 400, ""},
		{"done and now", "?done=1&now=1", "", "", 400, ""},
		{"parameters that cannot be parsed", "?done=%zz", "", "", 400, ""},
		{"a semicolon", "?now=0;done=1", "", "", 400, ""},
		{"a body that cannot be parsed", "", form, "done=%zz", 400, ""},
		{"a form of another kind", "", multipart, "--x\r\nContent-Disposition: form-data; name=\"done\"\r\n\r\n1\r\n--x--\r\n", 400, ""},
		{"JSON", "", "application/json", `{"done": true}`, 400, ""},
		{"a body of no kind", "", "", `done=1`, 400, ""},
	} {
		for way, want := range map[string]int{"/api/v1/install/": http.StatusOK, "/do/install/": http.StatusSeeOther} {
			t.Run(tt.name+" "+way, func(t *testing.T) {
				status, body := h.change(t, way+"master-1"+tt.query, tt.kind, tt.body)
				if tt.status != 0 {
					want = tt.status
				}
				if calls := h.takeCalls(); status != want || !strings.HasPrefix(calls, tt.calls) || tt.calls == "" && calls != "" {
					t.Errorf("%d, want %d; did %q, want %q: %s", status, want, calls, tt.calls, body)
				}
			})
		}
	}
}

// TestHostOfPath: a host of a path is a name, or a MAC in any spelling, which the daemon gets in one.
func TestHostOfPath(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	for _, tt := range []struct {
		host, calls string
		status      int
	}{
		{"52-54-00-2C-01-10", "install 52:54:00:2c:01:10", http.StatusOK},
		{"52:54:00:2c:01:10", "install 52:54:00:2c:01:10", http.StatusOK},
		{"a%20b", "", http.StatusBadRequest},
	} {
		status, body := h.change(t, "/api/v1/install/"+tt.host, "", "")
		if calls := h.takeCalls(); status != tt.status || !strings.HasPrefix(calls, tt.calls) || tt.calls == "" && calls != "" {
			t.Errorf("%s: %d, want %d; did %q, want %q: %s", tt.host, status, tt.status, calls, tt.calls, body)
		}
	}
}

// change sends a POST with the token, and follows no redirect.
func (h *adminServer) change(t *testing.T, path, kind, body string) (status int, answer string) {
	t.Helper()
	return h.call(t, http.MethodPost, path, kind, body)
}

// call sends a request with the token, and follows no redirect.
func (h *adminServer) call(t *testing.T, method, path, kind, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

// takeCalls returns what was done since it was called last.
func (h *fakeDaemon) takeCalls() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := strings.Join(h.done, ", ")
	h.done = nil
	return calls
}

// TestQuestionParameters: every GET of the API refuses parameters that it does not know, that are given twice or cannot be parsed, and flags
// that are neither 0 nor 1.
func TestQuestionParameters(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	paths := httpd.QuestionPaths()
	get := func(path string) (int, string) { return h.call(t, http.MethodGet, "/api/v1/"+path, "", "") }
	if len(paths) < 20 {
		t.Fatalf("questions: %v", paths)
	}
	at := strings.NewReplacer("{host}", "master-1", "{mac}", "52-54-00-00-00-01", "{client}", "master-1")
	for _, path := range paths {
		for _, query := range []string{"foo=1", "limits=1", "HOST=master-1", "%zz", "a;b"} {
			if status, body := get(at.Replace(path) + "?" + query); status != http.StatusBadRequest || !strings.Contains(body, "parameter") {
				t.Errorf("GET %s?%s: %d %s", path, query, status, body)
			}
		}
	}
	for query, want := range map[string]int{
		"lab?secrets=0": 200, "lab?secrets=yes": 400, "lab?secrets=1&secrets=1": 400, "lab?host=a&host=b": 400, "lab?secrets=": 400,
		"timeline/master-1?follow=0": 200, "timeline/master-1?follow=true": 400,
		"vms/plan?host=master-0&host=master-1": 200, "leases?mac=52:54:00&mac=52:54:01&state=active&state=offered": 200, "leases?pool=a&pool=b": 400,
		"leases?limit=1&cursor=192.168.131.1&network=lan&pool=p&host=x&expiring=1h": 200, "leases?limit=1&limit=2": 400,
		"dns/resolve?name=x.test&type=A&as=master-1&do=1": 200, "dns/resolve?name=x.test&do=2": 400, "vms/master-1/log?raw=2": 400,
	} {
		if status, body := get(query); status != want {
			t.Errorf("GET %s: %d, want %d: %s", query, status, want, body)
		}
	}
}
