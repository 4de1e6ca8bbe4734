package httpd_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// from connects from an address of this machine, 127.0.0.N.
func (w *bootServer) from(t *testing.T, n byte) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}}
	c, err := d.DialContext(t.Context(), "tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begun asks for a file and reads the head of the answer.
func begun(t *testing.T, c net.Conn, path string) *http.Response {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // for the body, too
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("ask for %s: %v", path, err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// isCut fails unless the server closes the connection.
func isCut(t *testing.T, what string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s is not hung up on", what)
	}
}

// TestSilentConnectionsMakeRoom: who holds many connections and asks nothing keeps nobody out, and no download is cut for it.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Connections: 4}, map[string][]byte{"images/vmlinuz": image(big), "public/a": []byte("a")})
	download := begun(t, w.from(t, 3), "/files/images/vmlinuz")
	waiting := w.from(t, 1)
	silent := []net.Conn{w.from(t, 2), w.from(t, 2)}
	begun(t, w.from(t, 4), "/files/public/a")
	isCut(t, "the older one of an address that has two", silent[0])
	begun(t, w.from(t, 5), "/files/public/a")
	isCut(t, "the one that has waited for longest, as all have one", waiting)
	if n, err := io.Copy(io.Discard, download.Body); err != nil || n != big {
		t.Errorf("the download ended after %d bytes: %v", n, err)
	}
	want := strings.NewReader(`
		# HELP bootlab_httpd_connections_evicted_total HTTP connections closed because the connection limit was reached.
		# TYPE bootlab_httpd_connections_evicted_total counter
		bootlab_httpd_connections_evicted_total{listener="http"} 2
`)
	if err := testutil.GatherAndCompare(w.reg, want, httpd.MetricEvicted); err != nil {
		t.Error(err)
	}
}

// TestStalledDownloadsMakeRoom: where everybody is being answered, the address that has most gives way, and gets no more.
func TestStalledDownloadsMakeRoom(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Connections: 2}, map[string][]byte{"images/vmlinuz": image(big)})
	stalled := []*http.Response{begun(t, w.from(t, 2), "/files/images/vmlinuz"), begun(t, w.from(t, 2), "/files/images/vmlinuz")}
	another := w.from(t, 2)
	isCut(t, "the third of an address that has two", another)
	good := begun(t, w.from(t, 1), "/files/images/vmlinuz")
	if n, err := io.Copy(io.Discard, stalled[0].Body); err == nil {
		t.Errorf("the older of the stalled downloads is whole: %d bytes", n)
	}
	if n, err := io.Copy(io.Discard, good.Body); err != nil || n != big {
		t.Errorf("the newcomer's download ended after %d bytes: %v", n, err)
	}
}

// TestSlowestDownloadMakesRoom: where all addresses have one download, one that stalls makes room for another client in the end.
func TestSlowestDownloadMakesRoom(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Connections: 2, Patience: 100 * time.Millisecond}, map[string][]byte{"images/vmlinuz": image(big), "public/a": []byte("a")})
	for n := range byte(2) {
		begun(t, w.from(t, 2+n), "/files/images/vmlinuz")
	}
	w.answersAtLast(t, 4)
}

// TestSlowReadersMakeRoom: the fewer connections there may be, the faster each has to be where all addresses have one.
func TestSlowReadersMakeRoom(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{Connections: 2, Patience: 2 * time.Second}, map[string][]byte{"images/vmlinuz": image(big), "public/a": []byte("a")})
	for n := range byte(2) {
		c := w.from(t, 2+n)
		_ = c.(*net.TCPConn).SetReadBuffer(8 << 10) // so that it takes bytes evenly
		slow := begun(t, c, "/files/images/vmlinuz")
		_ = c.SetReadDeadline(time.Time{})
		t.Cleanup(func() { _ = c.Close() }) // before the body, which reads on when it is closed
		go func() {                         // 64 KiB/s
			for {
				if _, err := io.CopyN(io.Discard, slow.Body, 2<<10); err != nil {
					return
				}
				time.Sleep(time.Second / 32)
			}
		}()
	}
	w.answersAtLast(t, 4)
}

// answersAtLast fails the test if a client at 127.0.0.n, which asks again whenever it is refused, gets no answer.
func (w *bootServer) answersAtLast(t *testing.T, n byte) {
	t.Helper()
	netns.WaitFor(t, "an answer", func() bool {
		c := w.from(t, n)
		defer c.Close()
		fmt.Fprint(c, "GET /files/public/a HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil
	})
}
