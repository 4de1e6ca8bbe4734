package h1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const plainRequest = "GET /api/v1/nodes?limit=500 HTTP/1.1\r\nHost: web.example.com\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"

func TestReadRequest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"plain", plainRequest, "GET /api/v1/nodes?limit=500 of web.example.com, framing 0"},
		{"empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / of a, framing 0"},
		{"absolute", "GET http://a?b HTTP/1.1\r\nHost: A\r\n\r\n", "GET /?b of a, framing 0"},
		{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", "POST / of a, framing 2"},
		{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "POST / of a, framing 1"},
		{"both", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / of a, framing 2, last"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "Host is malformed or there twice"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "Host is missing"},
		{"other authority", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "the authority of the target is not the Host"},
		{"bare LF", "GET / HTTP/1.1\nHost: a\r\n\r\n", "a line ends without CRLF"},
		{"folded", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", "a field is folded"},
		{"space before colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "a field name is malformed"},
		{"list of codings", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "Transfer-Encoding is not chunked, once"},
		{"signed length", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", "Content-Length is malformed or there twice"},
		{"cut", "GET / HTTP/1.1\r\nHost: a", io.ErrUnexpectedEOF.Error()},
		{"nothing", "", io.EOF.Error()},
		{"large", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", MaxHead) + "\r\n\r\n", ErrHeadTooLarge.Error()},
		{"many", "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", MaxFields+1) + "\r\n", ErrHeadTooLarge.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := described(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func described(in string) string {
	var h Head
	if err := h.ReadRequest(bufio.NewReader(strings.NewReader(in))); err != nil {
		return err.Error()
	}
	framing, _ := h.Framing()
	out := string(h.Method) + " " + string(h.Target) + " of " + string(h.Host) + ", framing " + string(rune('0'+framing))
	if !h.Persistent() {
		out += ", last"
	}
	return out
}

// A head is reused, and nothing of one message may show in the next.
func TestHeadIsReused(t *testing.T) {
	t.Parallel()
	var h Head
	in := bufio.NewReader(strings.NewReader("POST / HTTP/1.0\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n"))
	if err := errors.Join(h.ReadRequest(in), h.ReadRequest(in)); err != nil {
		t.Fatal(err)
	}
	if h.Upgrade || h.Protocol != nil || h.Length != -1 || !h.Persistent() || len(h.Fields) != 1 || h.Minor != 1 {
		t.Errorf("the second head is %+v", h)
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		framing Framing
		length  int64
		in      string
		want    string
		err     string
	}{
		{"length", ByLength, 3, "abcd", "abc", ""},
		{"length, cut", ByLength, 3, "ab", "ab", io.ErrUnexpectedEOF.Error()},
		{"close", ByClose, 0, "abcd", "abcd", ""},
		{"chunks", ByChunks, 0, "2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: 1\r\nContent-Length: 9\r\n\r\nnext", "abc T=1", ""},
		{"chunks, cut", ByChunks, 0, "2\r\nab\r\n", "ab", io.ErrUnexpectedEOF.Error()},
		{"bad size", ByChunks, 0, "ZZ\r\nab\r\n", "", "a chunk size is malformed"},
		{"bare LF", ByChunks, 0, "2\nab\r\n", "", "a chunk size does not end with CRLF"},
		{"no end of chunk", ByChunks, 0, "2\r\nabc\r\n", "ab", "a chunk does not end with CRLF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var b Body
			b.Reset(bufio.NewReader(strings.NewReader(test.in)), test.framing, test.length)
			content, err := io.ReadAll(&b)
			for _, f := range b.Trailers() {
				content = append(append(append(append(content, ' '), f.Name...), '='), f.Value...)
			}
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff([]string{test.want, test.err}, []string{string(content), message}); diff != "" {
				t.Errorf("content and error (-want +got):\n%s", diff)
			}
			if b.Done() != (err == nil) {
				t.Errorf("Done is %v after %v", b.Done(), err)
			}
		})
	}
}

// FuzzBody holds that content that was written in chunks is read again as it was.
func FuzzBody(f *testing.F) {
	f.Add([]byte("ab"), []byte("0\r\n\r\n"), "X")
	f.Fuzz(func(t *testing.T, first, second []byte, trailer string) {
		var out []byte
		for _, p := range [][]byte{first, second} {
			if len(p) > 0 {
				out = AppendContent(out, ByChunks, p)
			}
		}
		want := Field{[]byte("T"), TrimSpace([]byte(trailer))}
		if !IsText(want.Value) || len(want.Value) > 1000 {
			want.Value = nil
		}
		out = append(AppendTrailers(out, []Field{want}), "rest"...)
		in := bufio.NewReader(bytes.NewReader(out))
		var b Body
		b.Reset(in, ByChunks, 0)
		got, err := io.ReadAll(&b)
		if err != nil || string(got) != string(first)+string(second) {
			t.Fatalf("read %q, %v from %q", got, err, out)
		}
		if left, _ := io.ReadAll(in); string(left) != "rest" {
			t.Fatalf("%q is left of %q", left, out)
		}
		if ts := b.Trailers(); len(ts) != 1 || string(ts[0].Value) != string(want.Value) {
			t.Fatalf("trailers %q of %q", ts, out)
		}
	})
}

func BenchmarkReadRequest(b *testing.B) {
	var h Head
	source := strings.NewReader(plainRequest)
	in := bufio.NewReader(source)
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(plainRequest)
		in.Reset(source)
		if err := h.ReadRequest(in); err != nil {
			b.Fatal(err)
		}
	}
}
