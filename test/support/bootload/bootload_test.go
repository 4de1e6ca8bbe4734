package bootload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseScript(t *testing.T) {
	t.Parallel()
	const good = "#!ipxe\necho bootlab: node boots\nkernel --name kernel http://10.0.0.1/k initrd=initrd0 config=http://10.0.0.1/c done=http://10.0.0.1/d || goto failed\n" +
		"initrd --name initrd0 http://10.0.0.1/i || goto failed\nboot\n"
	want := script{kernel: "http://10.0.0.1/k", initrd: "http://10.0.0.1/i", config: "http://10.0.0.1/c", done: "http://10.0.0.1/d"}
	got, err := parseScript(good)
	if d := cmp.Diff(want, got, cmp.AllowUnexported(script{})); err != nil || d != "" {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	for _, lacking := range []string{"kernel --name", "initrd --name", "config=", "done="} {
		if _, err := parseScript(strings.Replace(good, lacking, "x", 1)); err == nil {
			t.Errorf("a script without %q is taken", lacking)
		}
	}
}

// Every kind of wrong answer must be seen, else a fast wrong server would win.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	self := netip.MustParseAddr("127.0.0.1")
	tests := []struct {
		name   string
		answer http.HandlerFunc
		do     func(*walk, string) error
		ok     bool
	}{
		{"whole", ofLength(10), file(10), true},
		{"another length", ofLength(11), file(10), false},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(make([]byte, 50_000))
		}, file(100_000), false},
		{"refused", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, file(3), false},
		{"its document", says("x=1\naddress=127.0.0.1\n"), document, true},
		{"another's document", says("address=127.0.0.11\n"), document, false},
		{"done refused", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
			func(w *walk, url string) error { w.script.done = url; return w.done(t.Context()) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.answer)
			defer server.Close()
			w := &walk{addr: self, sink: make([]byte, 1<<16)}
			defer func() { w.http.close() }()
			if err := tt.do(w, server.URL+"/x"); (err == nil) != tt.ok {
				t.Errorf("error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func ofLength(n int) http.HandlerFunc { return says(strings.Repeat("x", n)) }

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

func file(want int64) func(*walk, string) error {
	return func(w *walk, url string) error { return w.file(context.Background(), url, want) }
}

func document(w *walk, url string) error {
	w.script.config = url
	return w.document(context.Background())
}

// TestTransfer holds that a lost block is asked for again from where it was lost, and that a file ends with its short block.
func TestTransfer(t *testing.T) {
	t.Parallel()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tr := &transfer{walk: &walk{}, conn: conn, to: server.LocalAddr().(*net.UDPAddr).AddrPort(), next: 1}
	if err := tr.options([]byte("tsize\x003000\x00blksize\x001000\x00windowsize\x004\x00")); err != nil || tr.size != 3000 || tr.block != 1000 || tr.window != 4 {
		t.Fatalf("%v: %+v", err, tr)
	}
	for _, step := range []struct {
		block uint16
		n     int
		more  bool
		ack   int // -1: none
	}{
		{1, 1000, true, -1}, {3, 1000, true, 1}, {2, 1000, true, -1}, {1, 1000, true, -1}, {3, 1000, true, -1}, {4, 0, false, 4},
	} {
		if more := tr.data(step.block, step.n); more != step.more {
			t.Errorf("block %d: more %v, want %v", step.block, more, step.more)
		}
		if got := acked(t, server); got != step.ack {
			t.Errorf("block %d: acknowledged %d, want %d", step.block, got, step.ack)
		}
	}
	if tr.got != 3000 {
		t.Errorf("%d bytes", tr.got)
	}
	if _, err := tr.take([]byte("\x00\x05\x00\x01not there\x00")); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("an error of the server is %v", err)
	}
}

// acked returns the block that the server was sent an ACK of, or -1.
func acked(t *testing.T, server *net.UDPConn) int {
	t.Helper()
	_ = server.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b := make([]byte, 16)
	n, err := server.Read(b)
	if err != nil || n != 4 || b[1] != opAck {
		return -1
	}
	return int(b[2])<<8 | int(b[3])
}

func TestSum(t *testing.T) {
	t.Parallel()
	var walks []*walk
	for i := range 10 {
		w := &walk{again: 1}
		for range stages() {
			w.reached = append(w.reached, time.Duration(i+1)*time.Second)
		}
		walks = append(walks, w)
	}
	lost := &walk{failed: "kernel", err: errors.New("it is gone")}
	lost.reached = []time.Duration{11 * time.Second}
	r := sum(append(walks, lost))
	want := Spread{First: time.Second, P50: 6 * time.Second, P99: 10 * time.Second, Last: 10 * time.Second}
	if r.Spread != want || r.Done != 10 || r.Machines != 11 || r.Again != 10 || r.Failed["kernel"].Count != 1 || r.Stages[0].Last != 11*time.Second {
		t.Errorf("%+v", r)
	}
}
