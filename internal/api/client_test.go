package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestNobodyAnswers checks what the command line prints when there is no daemon.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "admin.sock")
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := tcp.Addr().String()
	tcp.Close()
	for target, where := range map[string]string{gone: gone, dead: dead, "unix://" + dead: dead, "./gone.sock": "./gone.sock", "gone.sock": "gone.sock", "http://" + closed: "http://" + closed, closed: closed} {
		c, err := api.NewClient(target, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Status(t.Context())
		want := "no bootlab daemon answers at " + where + ": is it running? (bootlab serve)"
		if err == nil || err.Error() != want || !errors.Is(err, api.ErrNoDaemon) {
			t.Errorf("%s: error %v, want %s", target, err, want)
		}
	}
}

// TestAnswers checks the errors that a daemon, or something else at its address, answers with.
func TestAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"error", `{"error":"no host x","hint":"bootlab hosts lists them"}`, 404, "no host x (bootlab hosts lists them)"},
		{"refused lab", `{"error":"the lab was refused","reason":"lab.yaml:1:1: a\nlab.yaml:2:1: b"}`, 422, "the lab was refused\nlab.yaml:1:1: a\nlab.yaml:2:1: b"},
		{"another web server", "<html>router login</html>", 404, "answered 404 Not Found, which is not an answer of bootlab"},
		{"not JSON", "<html>router login</html>", 200, "read the daemon's answer to status: invalid character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}))
			defer srv.Close()
			c, err := api.NewClient(srv.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err = c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestClientGivesUp ends with its context.
func TestClientGivesUp(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close()
	c, err := api.NewClient(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Hosts(ctx); !errors.Is(err, context.Canceled) || err.Error() != "interrupted" {
		t.Errorf("error %v", err)
	}
}

// TestInterruptedAnswer: an answer that has begun ends with the context, too.
func TestInterruptedAnswer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "{}")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := api.NewClient(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	cancel()
	if _, err := io.ReadAll(stream); err != api.ErrInterrupted {
		t.Errorf("read a backup: error %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	err = c.Follow(ctx, "host", func(event.Event) error { cancel(); return nil })
	if err != api.ErrInterrupted {
		t.Errorf("follow: error %v", err)
	}
}

// TestFrozenDaemon: the kernel accepts connections for a daemon that is stopped.
func TestFrozenDaemon(t *testing.T) {
	t.Parallel()
	frozen := filepath.Join(t.TempDir(), "frozen.sock")
	l, err := net.Listen("unix", frozen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := api.NewClient(frozen, "")
	if err != nil {
		t.Fatal(err)
	}
	c.SetAnswerTimeout(10 * time.Millisecond)
	if _, err := c.Status(t.Context()); !errors.Is(err, api.ErrNoDaemon) || !strings.Contains(err.Error(), "sends nothing") {
		t.Errorf("error %v", err)
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "ftp://x", "http://", "relative/a.sock://"} {
		if _, err := api.NewClient(target, ""); err == nil {
			t.Errorf("%q was taken for an address", target)
		}
	}
}

// TestAsError keeps what an error says of itself.
func TestAsError(t *testing.T) {
	t.Parallel()
	inner := &api.Error{Status: 409, Message: "busy", Hint: "wait"}
	tests := []struct {
		name   string
		err    error
		status int
		json   string
	}{
		{"itself", inner, 409, `{"error":"busy","hint":"wait"}`},
		{"wrapped", fmt.Errorf("arm: %w", inner), 409, `{"error":"busy","hint":"wait"}`},
		{"with a status", fmt.Errorf("arm: %w", teapot{}), 418, `{"error":"arm: teapot"}`},
		{"any", fs.ErrClosed, 500, `{"error":"file already closed"}`},
		{"of the system", &os.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}, 500, `{"error":"open x: permission denied"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := api.AsError(tt.err)
			b, err := json.Marshal(e)
			if err != nil || e.HTTPStatus() != tt.status || string(b) != tt.json {
				t.Errorf("%d %s, %v; want %d %s", e.HTTPStatus(), b, err, tt.status, tt.json)
			}
		})
	}
}

type teapot struct{}

func (teapot) Error() string   { return "teapot" }
func (teapot) HTTPStatus() int { return 418 }
