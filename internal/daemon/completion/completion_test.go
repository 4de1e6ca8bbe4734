package completion

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/lab"
)

// An apiAnswers is an HTTPS server whose certificate is for example.com, as httptest's is. It answers one request as a Kubernetes API server does.
type apiAnswers struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	body   string
	seen   *http.Request
}

func newAPIAnswers(t *testing.T) *apiAnswers {
	t.Helper()
	a := &apiAnswers{}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen = r
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *apiAnswers) answer(status int, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.body = status, body
}

// kubeconfig writes a kubeconfig that leads to the server by the name api.example.com.
func (a *apiAnswers) kubeconfig(t *testing.T, path, token string, ca bool) {
	t.Helper()
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	trust := ""
	if ca {
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
		trust = ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(block)
	}
	text := fmt.Sprintf(`kind: Config
current-context: admin
contexts: [{name: admin, context: {cluster: prod, user: admin}}]
clusters: [{name: prod, cluster: {server: 'https://api.prod.lab.test:%s', tls-server-name: example.com%s}}]
users: [{name: admin, user: {token: %s}}]
`, u.Port(), trust, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCompletion: what API servers answer, and what that means. The name api.prod.lab.test is not looked up: the machines have it.
func TestCompletion(t *testing.T) {
	t.Parallel()
	server := newAPIAnswers(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := New(slog.New(slog.DiscardHandler))
	cl := &lab.Cluster{Name: "prod", Domain: "prod.lab.test", Kubeconfig: path}
	dead := netip.MustParseAddr("127.0.0.99") // of loopback: refuses
	machines := []netip.Addr{dead, netip.MustParseAddr("127.0.0.1")}
	if _, err := c.askNow(t.Context(), cl, machines); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	server.kubeconfig(t, path, "secret", true)
	time.Sleep(freshfile.CheckEvery + 100*time.Millisecond)
	const status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   cluster.Completion
		err    string
	}{
		{"complete", 200, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bootstrap","namespace":"kube-system"},"data":{"status":"complete"}}`, cluster.Complete, ""},
		{"another status", 200, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bootstrap"},"data":{"status":"progressing"}}`, cluster.Incomplete, ""},
		{"no data", 200, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bootstrap"}}`, cluster.Incomplete, ""},
		{"none yet", 404, fmt.Sprintf(status, `configmaps "bootstrap" not found`, "NotFound", 404), cluster.Incomplete, ""},
		{"not an API server", 404, "<html>404</html>", cluster.NotReported, "404 Not Found"},
		{"a page", 200, "<html>hello</html>", cluster.NotReported, "no ConfigMap"},
		{"bad token", 401, fmt.Sprintf(status, "Unauthorized", "Unauthorized", 401), cluster.NotReported, "401 Unauthorized: Unauthorized"},
		{"not allowed", 403, fmt.Sprintf(status, `configmaps "bootstrap" is forbidden`, "Forbidden", 403), cluster.NotReported, "is forbidden"},
		{"starting", 503, "", cluster.NotReported, "503 Service Unavailable"},
	} {
		server.answer(tt.status, tt.body)
		got, err := c.askNow(t.Context(), cl, machines)
		if got != tt.want || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, %v; want %v, %q", tt.name, got, err, tt.want, tt.err)
		}
	}
	if r := server.seen; r.URL.Path != "/api/v1/namespaces/kube-system/configmaps/bootstrap" || r.Header.Get("Authorization") != "Bearer secret" || !strings.HasPrefix(r.Host, "api.prod.lab.test:") {
		t.Errorf("asked %s %s as %q", r.Host, r.URL, r.Header.Get("Authorization"))
	}
	// A token that is renewed is used, and a server that the authorities do not vouch for is refused.
	server.kubeconfig(t, path, "renewed", false)
	time.Sleep(freshfile.CheckEvery + 100*time.Millisecond)
	if _, err := c.askNow(t.Context(), cl, machines); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("an unknown authority: %v", err)
	}
}

// TestCompletionAges: an answer of a cluster counts for some seconds, and a cluster that lost its kubeconfig has none.
func TestCompletionAges(t *testing.T) {
	t.Parallel()
	server := newAPIAnswers(t)
	server.answer(200, `{"kind":"ConfigMap","data":{"status":"complete"}}`)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	server.kubeconfig(t, path, "secret", true)
	c := New(slog.New(slog.DiscardHandler))
	cl := &lab.Cluster{Name: "prod", Domain: "prod.lab.test", Kubeconfig: path}
	var asking sync.WaitGroup
	c.Ask(t.Context(), &asking, cl, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	asking.Wait()
	server.answer(500, "")
	c.Ask(t.Context(), &asking, cl, []netip.Addr{netip.MustParseAddr("127.0.0.1")}) // too early: not asked
	asking.Wait()
	now := time.Now()
	if got, why := c.Of(cl, now); got != cluster.Complete || why != "" {
		t.Errorf("now: %v, %q", got, why)
	}
	if got, _ := c.Of(cl, now.Add(answerAge+time.Second)); got != cluster.NotReported {
		t.Errorf("later: %v", got)
	}
	if got, _ := c.Of(&lab.Cluster{Name: "prod"}, now); got != cluster.NotReported {
		t.Errorf("without a kubeconfig: %v", got)
	}
}

// TestDialMachines: only the cluster's own names lead to its machines.
func TestDialMachines(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dial := dialMachines(&lab.Cluster{Domain: "prod.lab.test"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	for name, want := range map[string]bool{"api.prod.lab.test": true, "API-int.prod.lab.test": true, "127.0.0.99": false} {
		conn, err := dial(t.Context(), "tcp", net.JoinHostPort(name, port))
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}
