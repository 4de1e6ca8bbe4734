package lbproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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

// TestExpectOfHTTP2Client: a client in HTTP/2 that waits for 100 (Continue) gets that of the backend, or its final answer instead, and the
// backend sees what it expects.
func TestExpectOfHTTP2Client(t *testing.T) {
	t.Parallel()
	newer := h2cServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	older := serveTCP(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		head := readHead(in)
		switch {
		case !strings.Contains(head, "Expect: 100-continue\r\n"):
			_, _ = io.WriteString(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
			return
		case strings.HasPrefix(head, "POST /refused "):
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
			return
		case strings.HasPrefix(head, "POST / "):
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		body := make([]byte, 5)
		_, _ = io.ReadFull(in, body)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", body)
	})
	first, second := httpBalancer("first", addr(t), older), httpBalancer("second", addr(t), newer)
	second.Protocol = lab.BackendH2C
	newTestServer(t, Config{}, first, second)
	client := h2cClient(t)
	client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	for _, b := range []*lab.Balancer{first, second} {
		for path, want := range map[string]string{"/": "100 200 hello", "/refused": "413 ", "/silent": "100 200 hello"} {
			t.Run(b.Name+path, func(t *testing.T) {
				t.Parallel()
				got := ""
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { got += "100 " }})
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.Listen.String()+path, strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Expect", "100-continue")
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if got += fmt.Sprintf("%d %s", resp.StatusCode, body); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}
