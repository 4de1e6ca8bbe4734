package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

const big = 24 << 20 // more than the buffers of both ends of a connection hold

// ask sends a request and returns the connection, with as little room for the answer as the kernel allows.
func (w *bootServer) ask(t *testing.T, path string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	conn := c.(*net.TCPConn)
	if err := conn.SetReadBuffer(128 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, w.addr); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStalledReader gives up on a reader that takes nothing, and tells so.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Stall: time.Second}, map[string][]byte{"images/vmlinuz": image(big)})
	w.ask(t, "/files/images/vmlinuz")
	e := w.events.next(t)
	if e.Kind != event.FileAborted || e.Err != "the client accepted no data for 1s" || e.Reason != event.Stalled || e.Bytes == 0 || e.Bytes == big || e.Size != big {
		t.Errorf("event %+v", e)
	}
}

// TestSlowReader leaves a reader alone that is slow but steady, and keeps every byte in its place although deadlines pass
// in the middle of sendfile.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const stall = 1500 * time.Millisecond
	want := image(big)
	w := newBootServer(t, httpd.Limits{Stall: stall}, map[string][]byte{"images/vmlinuz": want})
	var got []byte
	netns.WaitFor(t, "a reader that this machine lets be steady", func() (ok bool) {
		got, ok = w.readSlowly(t, "/files/images/vmlinuz", stall)
		if !ok {
			w.events.next(t) // of the end of its transfer
		}
		return ok
	})
	if !bytes.Equal(got, want) {
		t.Error("the bytes differ")
	}
	if e := w.events.next(t); e.Kind != event.FileServed || e.Bytes != big || e.Dur < 5*stall/2 {
		t.Errorf("event %+v", e)
	}
}

// readSlowly reads a file, at 650 kB/s for three times the time that a transfer may stall. ok is false if this process was so slow that it
// emptied the buffers of its connection in no less than half of that time, and the transfer ended.
func (w *bootServer) readSlowly(t *testing.T, path string, stall time.Duration) (body []byte, ok bool) {
	t.Helper()
	const chunk, buffers = 16 << 10, 256 << 10 // the kernel doubles what ask sets
	conn := w.ask(t, path)
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	start, steady := time.Now(), true
	read := []time.Time{start} // when each chunk was
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4096), nil)
	for err == nil && len(body) < big {
		if time.Since(start) < 3*stall {
			<-pace.C
		}
		b := make([]byte, chunk)
		_, err = io.ReadFull(resp.Body, b)
		body, read = append(body, b...), append(read, time.Now())
		if pause := time.Since(read[max(len(read)-1-buffers/chunk, 0)]); pause >= stall/2 {
			steady = false
		}
	}
	if err != nil && steady {
		t.Fatalf("after %s: %v", time.Since(start), err)
	}
	return body, err == nil
}

// TestAbort hangs up in the middle of an image and of a config document. A document that was not read whole is no read.
func TestAbort(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(big)})
	w.service.document = image(big)
	for path, detail := range map[string]string{
		"/files/images/vmlinuz":                           "files/images/vmlinuz",
		"/config/" + hyphens + "/" + testToken + "/m.ign": "config/" + hyphens + "/…/m.ign",
	} {
		conn := w.ask(t, path)
		if _, err := io.CopyN(io.Discard, conn, 100_000); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if e := w.events.next(t); e.Kind != event.FileAborted || e.Detail != detail || e.Err == "" || e.Bytes < 90_000 || e.Bytes >= big {
			t.Errorf("event %+v", e)
		}
	}
	w.end(t)()
	if calls := w.service.noted(); !slices.Equal(calls, []string{"config " + testMAC + " m.ign"}) {
		t.Errorf("boot service calls %q", calls)
	}
}

// TestStopLetsTransfersFinish stops the server under a transfer, which ends whole.
func TestStopLetsTransfersFinish(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(big)})
	resp, err := http.ReadResponse(bufio.NewReader(w.ask(t, "/files/images/vmlinuz")), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	for { // until the listener is gone, so that the stop is under way for sure
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			break
		}
		c.Close()
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if n != big || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if e := w.events.next(t); e.Kind != event.FileServed {
		t.Errorf("event %+v", e)
	}
}

// TestStopCutsWhatNeverEnds gives transfers no more than Limits.Drain.
func TestStopCutsWhatNeverEnds(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Drain: 100 * time.Millisecond}, map[string][]byte{"images/vmlinuz": image(big)})
	if _, err := io.CopyN(io.Discard, w.ask(t, "/files/images/vmlinuz"), 1000); err != nil {
		t.Fatal(err)
	}
	w.end(t)()
	if e := w.events.next(t); e.Kind != event.FileAborted {
		t.Errorf("event %+v", e)
	}
}

// TestConfigIsReadAfterItsBody asserts the order: the whole document is sent first, then its read is recorded.
func TestConfigIsReadAfterItsBody(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, nil)
	w.service.document = image(big)
	conn := w.ask(t, "/config/"+hyphens+"/"+testToken+"/m.ign")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, big/4); err != nil {
		t.Fatal(err)
	}
	if calls := w.service.noted(); len(calls) != 1 {
		t.Errorf("before the end: %q", calls)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	want := []string{"config " + testMAC + " m.ign", fmt.Sprintf("read %s m.ign %d", testMAC, big)}
	if calls := w.service.settled(t, 0, 2); !slices.Equal(calls, want) {
		t.Errorf("boot service calls %q", calls)
	}
}

// TestReadRecordedAfterHangup is about machines that close the connection as soon as they have the document, or have
// said that they are done: what they did is written down all the same, or a second reader would get the document.
func TestReadRecordedAfterHangup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ path, until string }{
		{"/config/" + testMAC + "/" + testToken + "/master.ign", "}}"},
		{"/done/" + testMAC + "/" + testToken, ""},
	} {
		t.Run(strings.Split(tt.path, "/")[1], func(t *testing.T) {
			t.Parallel()
			w := newBootServer(t, httpd.Limits{}, nil)
			hungUp, verdict := make(chan struct{}), make(chan error, 1)
			w.service.recording = func(ctx context.Context) {
				<-hungUp
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond): // the server notices sooner
				}
				verdict <- ctx.Err()
			}
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", tt.path); err != nil {
				t.Fatal(err)
			}
			if tt.until != "" {
				for got, buf := "", make([]byte, 1); !strings.HasSuffix(got, tt.until); got += string(buf) {
					if _, err := c.Read(buf); err != nil {
						t.Fatalf("after %q: %v", got, err)
					}
				}
			}
			_ = c.Close()
			close(hungUp)
			if err := <-verdict; err != nil {
				t.Errorf("the boot service was told to give up: %v", err)
			}
		})
	}
}

const helperEnv = "BOOTLAB_HTTPD_SENDFILE"

// TestSendfile starts this test binary under strace and asserts that an image leaves by sendfile(2) alone, in full segments.
func TestSendfile(t *testing.T) {
	if os.Getenv(helperEnv) != "" {
		serveOneImage(t)
		return
	}
	t.Parallel()
	netns.Need(t, "strace")
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-e", "trace=sendfile,setsockopt", "-o", trace, "/proc/self/exe", "-test.run=^TestSendfile$")
	cmd.Args[6] = mustExecutable(t)
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("PTRACE")) {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var sent int
	for _, m := range regexp.MustCompile(`(?m)sendfile.* = (\d+)$`).FindAllStringSubmatch(string(b), -1) {
		n, _ := strconv.Atoi(m[1])
		sent += n
	}
	cork := regexp.MustCompile(`TCP_CORK, \[(\d)\]`).FindAllStringSubmatch(string(b), -1)
	if len(cork) != 2 || cork[0][1] != "1" || cork[1][1] != "0" {
		t.Errorf("corked %q, want once, and uncorked at the end", cork)
	}
	if sent != big {
		t.Errorf("%d of %d bytes left by sendfile:\n%.2000s", sent, big, b)
	}
}

func mustExecutable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func serveOneImage(t *testing.T) {
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(big)})
	resp, err := http.Get(w.url("/files/images/vmlinuz"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != big || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
}

// TestPartsInOneAnswer asks for two ranges at once, which no boot client does but HTTP allows.
func TestPartsInOneAnswer(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": []byte("0123456789")})
	header, body := curl(t, "-r", "0-1,8-9", w.url("/files/images/vmlinuz"))
	if !strings.Contains(header, "206") || !strings.Contains(body, "\r\n\r\n01\r\n") || !strings.Contains(body, "\r\n\r\n89\r\n") {
		t.Errorf("%s\n%s", header, body)
	}
	w.end(t)()
	if lines := w.events.tell(); lines != nil {
		t.Errorf("events %q", lines)
	}
}

// TestRequestsAfterAnother keeps a connection alive over answers of every sort.
func TestRequestsAfterAnother(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Stall: time.Second}, map[string][]byte{"images/vmlinuz": image(1 << 20)})
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, path := range []string{"/files/images/vmlinuz", "/files/nothing", "/boot/" + hyphens + "/boot.ipxe", "/files/images/vmlinuz"} {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		<-time.After(1050 * time.Millisecond) // longer than Stall: the deadline of one answer must not break the next
	}
}

// TestServeReportsABrokenListener ends with the listener's error.
func TestServeReportsABrokenListener(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := w.boot.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "serve http on 127.0.0.1:") {
		t.Errorf("Serve: %v", err)
	}
}
