package lbproxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestHTTP2Expect: a client that waits for 100 (Continue) before it sends its body gets it also where the backend speaks HTTP/2,
// when the backend wants the body, or after a second if it does not say so.
func TestHTTP2Expect(t *testing.T) {
	t.Parallel()
	got100 := make(chan struct{})
	back := h2cServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		case "/silent": // Go sends 100 when the body is read
			select {
			case <-got100:
			case <-r.Context().Done():
			}
		}
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
		b.Protocol, b.Timeouts.Server = lab.BackendH2C, 15*time.Second
	})
	newTestServer(t, Config{}, b)
	for path, want := range map[string]string{"/": "100 200", "/refused": "413", "/silent": "100 200"} {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n")
		in, got := bufio.NewReader(c), ""
		head := readHead(in)
		if strings.HasPrefix(head, "HTTP/1.1 100 Continue\r\n\r\n") {
			if path == "/silent" {
				close(got100)
			}
			_, _ = io.WriteString(c, "hello")
			got, head = "100 ", readHead(in)
		}
		got += strings.TrimPrefix(head, "HTTP/1.1 ")[:min(3, max(0, len(head)-len("HTTP/1.1 ")))]
		if body, _ := io.ReadAll(in); got != want || want == "100 200" && !strings.Contains(string(body), "hello <nil>") {
			t.Errorf("%s: %q %q, want %s", path, got, body, want)
		}
	}
}
