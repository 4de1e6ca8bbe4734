package lbproxy

import (
	"bufio"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// setHTTP2 makes h the head of a request that net/http has parsed. What an HTTP/1 backend would read otherwise is refused
// (RFC 9113 section 8.2.1).
func setHTTP2(h *h1.Head, r *http.Request) error {
	*h = h1.Head{Method: []byte(r.Method), Target: []byte(r.RequestURI), Minor: 1, Host: []byte(r.Host), HasHost: true, Length: r.ContentLength}
	if r.Method == http.MethodConnect || !h1.IsToken(h.Method) || !h1.IsTarget(h.Target) || h.Target[0] != '/' && string(h.Target) != "*" || !h1.IsHost(h.Host) {
		return h1.SyntaxError("the method, path or authority is malformed")
	}
	// net/http takes the first length, and the authority before the host, and passes the others on.
	if lengths := r.Header["Content-Length"]; len(lengths) > 1 || len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10) {
		return h1.SyntaxError("Content-Length is malformed, there twice or not the body's")
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return h1.SyntaxError("Host is there twice or not the authority")
	}
	for name, values := range r.Header {
		for _, value := range values {
			f := h1.Field{Name: []byte(name), Value: []byte(value)}
			if !h1.IsToken(f.Name) || !h1.IsText(f.Value) {
				return h1.SyntaxError("a field is malformed")
			}
			h.Fields = append(h.Fields, f)
		}
	}
	if len(h.Fields) > h1.MaxFields {
		return h1.SyntaxError("there are too many fields")
	}
	for name := range r.Trailer { // net/http has taken the field away
		h.Fields = append(h.Fields, h1.Field{Name: []byte("Trailer"), Value: []byte(name)})
	}
	return nil
}

// An http2Stream is a request of an HTTP/2 client. It implements responder.
type http2Stream struct {
	w       http.ResponseWriter
	r       *http.Request
	x       *exchange
	control *http.ResponseController
	broken  bool // the stream is reset at its end

	received atomic.Int64 // of the request's body
	sent     int64        // of the response's body
}

// gone implements responder.
func (s *http2Stream) gone() bool { return s.r.Context().Err() != nil }

// body sets how the request's body is read and sent.
func (s *http2Stream) body() {
	x := s.x
	switch {
	case s.r.ContentLength > 0:
		x.reqFraming = h1.ByLength
	case s.r.ContentLength < 0:
		x.reqFraming = h1.ByChunks
	}
	if x.reqFraming == h1.NoBody {
		x.reqBody.Reset(nil, h1.NoBody, 0)
		return
	}
	x.reqBody.Reset(bufio.NewReaderSize(s, backendBuffer), h1.ByClose, 0)
	x.reqTrailers = func() []h1.Field { return fieldsOf(s.r.Trailer) }
}

// Read reads the request's body.
func (s *http2Stream) Read(p []byte) (int, error) {
	if f := s.x.frontend; f != nil {
		_ = s.control.SetReadDeadline(time.Now().Add(f.Timeouts.Body))
	}
	n, err := s.r.Body.Read(p)
	s.received.Add(int64(n))
	return n, err
}

// headOf returns the fields of a head. What is of one connection is left out where the head is written.
func headOf(header http.Header) (out []h1.Field) {
	for name, values := range header {
		for _, value := range values {
			if f := (h1.Field{Name: []byte(name), Value: []byte(value)}); h1.IsToken(f.Name) && h1.IsText(f.Value) {
				out = append(out, f)
			}
		}
	}
	return out
}

// fieldsOf returns the fields that may be trailers.
func fieldsOf(header http.Header) []h1.Field {
	return slices.DeleteFunc(headOf(header), func(f h1.Field) bool { return h1.KindOf(f.Name) != h1.FieldOther })
}

// setFields sets the response's fields that are not of one connection.
func (s *http2Stream) setFields(resp *h1.Head) {
	header := s.w.Header()
	clear(header)
	header["Date"], header["Content-Type"] = nil, nil // what the backend does not send is not made up
	for _, f := range resp.Fields {
		switch h1.KindOf(f.Name) {
		case h1.FieldLength, h1.FieldEncoding, h1.FieldConnection, h1.FieldKeepAlive, h1.FieldProxyConnection, h1.FieldUpgrade, h1.FieldHost, h1.FieldTE:
			continue
		}
		header.Add(string(f.Name), string(f.Value))
	}
}

// interim implements responder.
func (s *http2Stream) interim(resp *h1.Head) error {
	s.setFields(resp)
	s.w.WriteHeader(resp.Status)
	return nil
}

// begin implements responder.
func (s *http2Stream) begin(x *exchange, _ h1.Framing, _ bool) error {
	s.setFields(&x.resp)
	if length := x.resp.Length; length >= 0 && !x.resp.Chunked && x.resp.Status != http.StatusNoContent {
		s.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	if cookie := x.cookie(); cookie != "" {
		s.w.Header().Add("Set-Cookie", cookie)
	}
	s.w.WriteHeader(x.resp.Status)
	return nil
}

// extendDeadline gives the client time to take what is written: as much as it has for a part of its own body.
func (s *http2Stream) extendDeadline() {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.x.frontend.Timeouts.Body))
}

// content implements responder.
func (s *http2Stream) content(p []byte) error {
	s.extendDeadline()
	s.sent += int64(len(p))
	_, err := s.w.Write(p)
	return err
}

// flush implements responder.
func (s *http2Stream) flush() error {
	s.extendDeadline()
	return s.control.Flush()
}

// finish implements responder.
func (s *http2Stream) finish(trailers []h1.Field) error {
	for _, f := range trailers {
		s.w.Header().Add(http.TrailerPrefix+string(f.Name), string(f.Value))
	}
	return nil
}

// answer answers with a text of ours.
func (s *http2Stream) answer(status int, text string) {
	s.x.status = status
	header := s.w.Header()
	clear(header)
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "5")
	}
	http.Error(s.w, text, status)
}

// stopReading implements responder.
func (s *http2Stream) stopReading(stop bool) {
	if stop {
		_ = s.control.SetReadDeadline(time.Unix(1, 0))
	}
}
