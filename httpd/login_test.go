package httpd_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/clock"
)

// TestLoginsAreLimited: one source has ten wrong tokens, by form and by header together, and then none for a while. Each is logged. The right
// token is accepted all the same: behind a proxy the admin and who guesses have one address.
func TestLoginsAreLimited(t *testing.T) {
	t.Parallel()
	clock := clock.New(noon())
	h := newAdminServerOf(t, newFakeDaemon(), func(d *httpd.AdminDeps) { d.Now = clock.Now })
	jar := filepath.Join(t.TempDir(), "jar")
	curl(t, "-c", jar, "-d", "token="+adminToken, h.url+"/login")
	status := func(args ...string) string {
		t.Helper()
		header, _ := curl(t, args...)
		return strings.Fields(header)[1]
	}
	wrong := []string{"-H", "Authorization: Bearer wrong-wrong-wrong-wrong", h.url + "/api/v1/status"}
	right := []string{"-H", "Authorization: Bearer " + adminToken, h.url + "/api/v1/status"}
	for i := range 5 {
		if got := status("-d", "token=wrong-wrong-wrong-wrong", h.url+"/login"); got != "403" {
			t.Fatalf("wrong login %d: %s", i, got)
		}
		if got := status(wrong...); got != "401" {
			t.Fatalf("wrong token %d: %s", i, got)
		}
	}
	for _, tt := range []struct {
		what string
		args []string
		want string
	}{
		{"the eleventh wrong token", wrong, "429"},
		{"a wrong one in a form", []string{"-d", "token=wrong-wrong-wrong-wrong", h.url + "/login"}, "429"},
		{"the right token", right, "200"},
		{"the right token in a form", []string{"-d", "token=" + adminToken, h.url + "/login"}, "303"},
		{"the next wrong token", wrong, "429"}, // the right one has changed nothing
	} {
		if got := status(tt.args...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
	if got := status("-b", jar, h.url+"/"); got != "200" {
		t.Errorf("an open session: %s", got)
	}
	if got := status("--unix-socket", h.socket, "http://bootlab/api/v1/status"); got != "200" {
		t.Errorf("the Unix socket: %s", got)
	}
	if got := status(append([]string{"--interface", "127.0.0.9"}, right...)...); got != "200" {
		t.Errorf("another source: %s", got)
	}
	clock.Advance(11 * time.Second)
	if got := status(wrong...); got != "401" {
		t.Errorf("a wrong token after a while: %s", got)
	}
	if n := strings.Count(h.logs.String(), "login failed: wrong token"); n != 11 {
		t.Errorf("%d lines for 11 wrong tokens", n)
	}
	if !strings.Contains(h.logs.String(), "login refused: too many wrong tokens from this address") || strings.Contains(h.logs.String(), "wrong-wrong") || !strings.Contains(h.logs.String(), "server=admin") || strings.Contains(h.logs.String(), "server=httpd") {
		t.Errorf("log:\n%s", h.logs)
	}
	_, text := curl(t, h.url+"/metrics")
	for _, want := range []string{`result="rejected"} 11`, `result="limited"} 3`, `result="accepted"} 4`} {
		if !strings.Contains(text, httpd.MetricLogins+"{"+want) {
			t.Errorf("no %s{%s in\n%s", httpd.MetricLogins, want, text)
		}
	}
}

// TestSessions: a logout ends its session, a revocation all of them, and time those that nobody uses. A stolen cookie is worth nothing then.
func TestSessions(t *testing.T) {
	t.Parallel()
	clock := clock.New(noon())
	h := newAdminServerOf(t, newFakeDaemon(), func(d *httpd.AdminDeps) { d.Now = clock.Now })
	login := func() (jar string) {
		t.Helper()
		jar = filepath.Join(t.TempDir(), "jar")
		curl(t, "-c", jar, "-d", "token="+adminToken, h.url+"/login")
		return jar
	}
	in := func(jar string) bool {
		t.Helper()
		header, _ := curl(t, "-b", jar, h.url+"/")
		return strings.Contains(header, " 200 ")
	}
	a, b := login(), login()
	curl(t, "-b", a, "-X", "POST", h.url+"/logout") // the jar keeps the cookie, as a thief does
	if in(a) || !in(b) {
		t.Errorf("after a's logout: a is logged in: %v, b: %v", in(a), in(b))
	}
	c := login()
	if _, text := curl(t, "--unix-socket", h.socket, "http://bootlab/api/v1/sessions"); strings.Count(text, `"from":"127.0.0.1"`) != 2 {
		t.Errorf("sessions: %s, want two", text)
	}
	if _, text := curl(t, "--unix-socket", h.socket, "-X", "POST", "http://bootlab/api/v1/sessions/revoke"); text != "{\"sessions\":2}\n" {
		t.Errorf("revoke: %s", text)
	}
	if in(b) || in(c) {
		t.Error("a session outlives the revocation")
	}
	d, e := login(), login()
	curl(t, "-b", d, "-d", "all=1", h.url+"/logout")
	if in(d) || in(e) {
		t.Error("a session outlives a logout everywhere")
	}
	f := login()
	clock.Advance(20 * time.Hour)
	if !in(f) {
		t.Error("a session ends after 20 hours")
	}
	clock.Advance(25 * time.Hour)
	if in(f) {
		t.Error("a session lives for 25 hours without a request")
	}
	first := login()
	for range 64 {
		clock.Advance(time.Second)
		login()
	}
	if in(first) {
		t.Error("65 sessions are kept")
	}
}

// TestRevokedSessionFollowsNothing: a session that was revoked opens no stream of events.
func TestRevokedSessionFollowsNothing(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	jar := filepath.Join(t.TempDir(), "jar")
	curl(t, "-c", jar, "-d", "token="+adminToken, h.url+"/login")
	header, _ := curl(t, "-b", jar, h.url+"/")
	if !strings.Contains(header, " 200 ") {
		t.Fatal(header)
	}
	curl(t, "--unix-socket", h.socket, "-X", "POST", "http://bootlab/api/v1/sessions/revoke")
	if header, _ := curl(t, "-b", jar, h.url+"/api/v1/timeline/master-1?follow=1"); !strings.Contains(header, " 401 ") {
		t.Errorf("a revoked session follows: %s", header)
	}
}

// TestRotateToken: a new token ends the old one, every session and every open stream at once. If it cannot be stored, the old one stays.
func TestRotateToken(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	var stored error
	ask := func(t *testing.T, handler http.Handler, method, path, name, value string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	const path = "/api/v1/sessions"
	synctest.Test(t, func(t *testing.T) {
		admin := newAdmin(t, h, &logBuffer{}, func(d *httpd.AdminDeps) {
			d.NewToken = func(context.Context) (string, error) { return "another-token-of-this-lab", stored }
		})
		public, trusted := admin.Public(), admin.Trusted()
		h.news, h.unfollowed = make(chan event.Event), make(chan string, 2)
		login := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/login", strings.NewReader("token="+adminToken))
		login.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		public.ServeHTTP(w, login)
		cookie, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		stored = errors.New("no space left on device")
		if w := ask(t, trusted, "POST", "/api/v1/token/rotate", "X-None", ""); w.Code != 500 || !strings.Contains(w.Body.String(), "no space left") {
			t.Errorf("not stored: %d %s", w.Code, w.Body)
		}
		if w := ask(t, public, "GET", path, "Authorization", "Bearer "+adminToken); w.Code != 200 {
			t.Errorf("the old token: %d", w.Code)
		}
		ended := make(chan struct{}, 2)
		for name, value := range map[string]string{"Cookie": cookie, "Authorization": "Bearer " + adminToken} {
			go func() {
				ask(t, public, "GET", "/api/v1/timeline/a?follow=1", name, value)
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("a stream ended before")
		}
		stored = nil
		if w := ask(t, public, "POST", "/api/v1/token/rotate", "Authorization", "Bearer "+adminToken); w.Code != 403 {
			t.Errorf("over TCP: %d %s", w.Code, w.Body)
		}
		if w := ask(t, trusted, "POST", "/api/v1/token/rotate", "X-None", ""); w.Body.String() != "{\"token\":\"another-token-of-this-lab\"}\n" {
			t.Errorf("rotate: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d of 2 streams ended", len(ended))
		}
		for _, tt := range []struct {
			name, value string
			code        int
		}{{"Cookie", cookie, 401}, {"Authorization", "Bearer " + adminToken, 401}, {"Authorization", "Bearer another-token-of-this-lab", 200}} {
			if w := ask(t, public, "GET", path, tt.name, tt.value); w.Code != tt.code {
				t.Errorf("%s %s: %d, want %d", tt.name, tt.value, w.Code, tt.code)
			}
		}
	})
}

// TestCookieBehindTLS: the cookie of a login that came by HTTPS through a proxy is sent back by HTTPS only.
func TestCookieBehindTLS(t *testing.T) {
	t.Parallel()
	public := newAdmin(t, newFakeDaemon(), &logBuffer{}, nil).Public()
	for _, tt := range []struct {
		proto  string
		secure bool
	}{{"", false}, {"http", false}, {"https", true}, {"HTTPS, http", true}, {"http, https", false}} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/login", strings.NewReader("token="+adminToken))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", tt.proto)
		w := httptest.NewRecorder()
		public.ServeHTTP(w, r)
		if got := w.Header().Get("Set-Cookie"); w.Code != 303 || strings.Contains(got, "; Secure") != tt.secure {
			t.Errorf("X-Forwarded-Proto %q: %d, %s, want Secure: %v", tt.proto, w.Code, got, tt.secure)
		}
	}
}

// TestStreamsEndWithTheirSession: an open stream ends at once when its session is revoked or logged out, and writes nothing more. One that
// was opened with the token goes on.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	h := newFakeDaemon()
	var public, trusted http.Handler
	ask := func(t *testing.T, handler http.Handler, method, path, form string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, cookie string)
	}{
		{"revoked", func(t *testing.T, _ string) { ask(t, trusted, "POST", "/api/v1/sessions/revoke", "") }},
		{"logged out", func(t *testing.T, cookie string) { ask(t, public, "POST", "/logout", "", "Cookie", cookie) }},
		{"logged out everywhere", func(t *testing.T, _ string) {
			other, _, _ := strings.Cut(ask(t, public, "POST", "/login", "token="+adminToken).Header().Get("Set-Cookie"), ";")
			ask(t, public, "POST", "/logout", "all=1", "Cookie", other)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			admin := newAdmin(t, h, &logBuffer{}, nil)
			public, trusted = admin.Public(), admin.Trusted()
			h.news, h.unfollowed = make(chan event.Event), make(chan string, 2)
			cookie, _, _ := strings.Cut(ask(t, public, "POST", "/login", "token="+adminToken).Header().Get("Set-Cookie"), ";")
			follow := func(name, value string) (<-chan string, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1/timeline/a?follow=1", nil)
				r.Header.Set(name, value)
				written := make(chan string, 1)
				go func() {
					w := httptest.NewRecorder()
					public.ServeHTTP(w, r)
					written <- w.Body.String()
				}()
				synctest.Wait()
				return written, cancel
			}
			bySession, cancel := follow("Cookie", cookie)
			defer cancel()
			byToken, cancelToken := follow("Authorization", "Bearer "+adminToken)
			defer cancelToken()
			time.Sleep(time.Second)
			tt.end(t, cookie)
			time.Sleep(time.Second)
			synctest.Wait()
			select {
			case text := <-bySession:
				if text != "" {
					t.Errorf("%s: the stream got %q", tt.name, text)
				}
			default:
				t.Errorf("%s: the stream is open a second later", tt.name)
			}
			select {
			case text := <-byToken:
				t.Errorf("%s: the stream of the token ended, with %q", tt.name, text)
			default:
			}
		})
	}
}

// TestHostHeader: a page whose name was made to resolve to this appliance (DNS rebinding) gets nothing.
func TestHostHeader(t *testing.T) {
	t.Parallel()
	h := newAdminServer(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ host, path, want string }{
		{"127.0.0.1:" + port, "/api/v1/status", "200"},
		{"127.0.0.1", "/api/v1/status", "200"},
		{"localhost:9680", "/api/v1/status", "200"},
		{"LocalHost", "/api/v1/status", "200"},
		{"[::1]:9680", "/api/v1/status", "200"},
		{"lab.example.com:9680", "/api/v1/status", "200"},
		{"LAB.example.com.", "/api/v1/status", "200"},
		{"192.0.2.80:80", "/api/v1/status", "200"},
		{"evil.example", "/api/v1/status", "421"},
		{"evil.example", "/", "421"},
		{"evil.example", "/login", "421"},
		{"evil.example", "/metrics", "421"},
		{"localhost.evil.example", "/", "421"},
		{"192.0.2.81", "/", "421"},
		{"[fd00::1]:9680", "/", "421"},
		{"evil.example", "/healthz", "200"}, // names nothing, and probes have names of their own
		{"evil.example", "/readyz", "200"},
	} {
		header, body := curl(t, "-H", "Host: "+tt.host, "-H", "Authorization: Bearer "+adminToken, h.url+tt.path)
		if got := strings.Fields(header)[1]; got != tt.want {
			t.Errorf("Host: %s, %s: %s, want %s\n%s", tt.host, tt.path, got, tt.want, body)
		}
		if strings.HasPrefix(header, "HTTP/1.1 421") && !strings.Contains(body, "appliance.admin_hosts") {
			t.Errorf("Host: %s: the answer does not say what to do: %s", tt.host, body)
		}
	}
}
