package lbproxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/lbproxy/h1"

	"github.com/bootlab/bootlab/internal/lab"
)

// appendRequest appends the head of the request for the backend. Fields keep their order and case; those of one
// connection (hop-by-hop, RFC 9110 section 7.6.1) are replaced, and so are the client's claims about where it comes from.
func (x *exchange) appendRequest(out []byte) []byte {
	r := &x.req
	out = append(out, r.Method...)
	out = append(out, ' ')
	out = append(out, r.Target...)
	old := r.Minor == 0 && x.reqFraming != h1.ByChunks
	if old {
		out = append(out, " HTTP/1.0\r\n"...)
	} else {
		out = append(out, " HTTP/1.1\r\n"...)
	}
	if r.HasHost || !old {
		out = h1.AppendField(out, []byte("Host"), r.Host)
	}
	for _, f := range r.Fields {
		switch h1.KindOf(f.Name) {
		case h1.FieldHost, h1.FieldLength, h1.FieldEncoding, h1.FieldConnection, h1.FieldKeepAlive, h1.FieldProxyConnection, h1.FieldUpgrade, h1.FieldSettings, h1.FieldTE:
			continue
		case h1.FieldForwarded, h1.FieldForwardedFor, h1.FieldForwardedHost, h1.FieldForwardedProto, h1.FieldForwardedPort:
			continue
		}
		out = h1.AppendField(out, f.Name, f.Value)
	}
	switch {
	case x.reqFraming == h1.ByChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.Length >= 0:
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, r.Length, 10), "\r\n"...)
	}
	out = x.appendForwarded(out)
	switch {
	case x.upgrades():
		out = append(out, "Connection: Upgrade\r\n"...)
		out = h1.AppendField(out, []byte("Upgrade"), r.Protocol)
	case x.frontend.SendProxy != 0: // its header names this request's client
		out = append(out, "Connection: close\r\n"...)
	case old:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	return append(out, "\r\n"...)
}

// appendForwarded appends who the client is (X-Forwarded-For, Forwarded): after what a trusted proxy says, else instead of what the client says.
func (x *exchange) appendForwarded(out []byte) []byte {
	var forwardedFor, forwarded, host, proto []byte
	if x.trusted() {
		for _, f := range x.req.Fields {
			switch h1.KindOf(f.Name) {
			case h1.FieldForwardedFor:
				forwardedFor = append(append(forwardedFor, f.Value...), ", "...)
			case h1.FieldForwarded:
				forwarded = append(append(forwarded, f.Value...), ", "...)
			case h1.FieldForwardedHost:
				host = f.Value
			case h1.FieldForwardedProto:
				proto = f.Value
			case h1.FieldForwardedPort:
				out = h1.AppendField(out, f.Name, f.Value)
			}
		}
	}
	out = append(append(out, "X-Forwarded-For: "...), forwardedFor...)
	out = x.src.Addr().AppendTo(out)
	out = append(out, "\r\n"...)
	if host == nil {
		host = x.req.Host
	}
	if len(host) > 0 {
		out = h1.AppendField(out, []byte("X-Forwarded-Host"), host)
	}
	scheme := []byte("http")
	if x.secure {
		scheme = []byte("https")
	}
	if proto == nil {
		proto = scheme
	}
	out = h1.AppendField(out, []byte("X-Forwarded-Proto"), proto)
	if forwarded != nil { // RFC 7239
		forwarded = append(forwarded, "for="...)
		if x.src.Addr().Is6() {
			forwarded = append(append(append(forwarded, `"[`...), x.src.Addr().String()...), `]"`...)
		} else {
			forwarded = x.src.Addr().AppendTo(forwarded)
		}
		out = h1.AppendField(out, []byte("Forwarded"), append(append(forwarded, ";proto="...), scheme...))
	}
	return out
}

// trusted reports whether the client is a proxy whose word on the client before it counts.
func (x *exchange) trusted() bool {
	return slices.ContainsFunc(x.frontend.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(x.src.Addr()) })
}

// sticky returns the backend that the request's cookie names; nil: none, or it may not be used. Its count is raised, as by
// pick.
func (x *exchange) sticky() *backend {
	f := x.frontend
	for _, field := range x.req.Fields {
		if h1.KindOf(field.Name) != h1.FieldCookie {
			continue
		}
		for pair := range bytes.SplitSeq(field.Value, []byte(";")) {
			name, value, _ := bytes.Cut(h1.TrimSpace(pair), []byte("="))
			if string(name) != f.Sticky {
				continue
			}
			for i := range f.backends {
				if b := &f.backends[i]; b.cookie == string(value) && b.usable() && b.state.take() {
					x.stickyTo = b
					return b
				}
			}
		}
	}
	return nil
}

// next returns a backend that is not in tried. It waits for the first while all have max_connections. last is the error if there is
// no other.
func (x *exchange) next(tried []*backend, last error) (*backend, error) {
	if b := x.pick(tried); b != nil {
		return b, nil
	}
	if len(tried) > 0 {
		return nil, last
	}
	ctx := x.context()
	b, err := x.proxy.s.choose(ctx, x.frontend, x.src.Addr(), x.client.gone)
	if ctx.Err() != nil && err != nil {
		err = errClientGone
	}
	return b, err
}

// pick chooses the backend of the request, none of those in tried.
func (x *exchange) pick(tried []*backend) *backend {
	if x.frontend.Sticky != "" && len(tried) == 0 {
		if b := x.sticky(); b != nil {
			return b
		}
	}
	return x.frontend.pick(x.src.Addr(), tried)
}

// cookie returns the Set-Cookie that keeps the client at the backend that answers; empty: it has one, or needs none.
func (x *exchange) cookie() string {
	if x.frontend.Sticky == "" || x.backend == nil || x.stickyTo == x.backend {
		return ""
	}
	cookie := x.frontend.Sticky + "=" + x.backend.cookie + "; Path=/; HttpOnly; SameSite=Lax"
	if x.secure {
		cookie += "; Secure"
	}
	return cookie
}

// redirect returns where the client is sent instead, and the status. Status 0: nowhere. Only 308 keeps every method, only 301 is
// known everywhere. A tunnel has no URL.
func (x *exchange) redirect() (status int, to string) {
	if x.frontend.Redirect != lab.RedirectHTTPS || x.secure || x.trusted() && x.claimsTLS() {
		return 0, ""
	}
	host := string(x.req.Host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		if host = name; strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	if host == "" {
		return 0, ""
	}
	to, status = "https://"+host, http.StatusPermanentRedirect
	switch method := string(x.req.Method); {
	case x.req.Connect():
		return http.StatusBadRequest, ""
	case method == http.MethodGet, method == http.MethodHead:
		status = http.StatusMovedPermanently
	}
	if string(x.req.Target) != "*" { // of the whole server
		to += string(x.req.Target)
	}
	return status, to
}

// claimsTLS reports whether a proxy says that its client uses TLS.
func (x *exchange) claimsTLS() bool {
	return slices.ContainsFunc(x.req.Fields, func(f h1.Field) bool {
		return h1.KindOf(f.Name) == h1.FieldForwardedProto && h1.EqualFold(f.Value, "https")
	})
}

// upgrades reports whether the client may change to the protocol that it wants. HTTP/1.0 has no upgrade (RFC 9110 section 7.8).
func (x *exchange) upgrades() bool {
	return x.req.Minor > 0 && x.req.Upgrade && upgradable(x.req.Protocol)
}

// upgradable reports whether a client may change to a protocol. HTTP/2 would hide its requests from the balancer.
func upgradable(protocol []byte) bool {
	for name := range bytes.SplitSeq(protocol, []byte(",")) {
		name = h1.TrimSpace(name)
		if len(name) == 0 || h1.EqualFold(name, "h2c") || h1.EqualFold(name, "h2") || len(name) >= 4 && h1.EqualFold(name[:4], "http") || h1.EqualFold(name, "tls/1.0") {
			return false
		}
	}
	return len(protocol) > 0
}

// appendResponse appends the head of a response for an HTTP/1 client. last: the connection ends after it.
func (x *exchange) appendResponse(out []byte, framing h1.Framing, last bool) []byte {
	r := &x.resp
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(r.Status), 10)
	out = append(out, ' ')
	out = append(out, r.Reason...)
	out = append(out, "\r\n"...)
	switching := r.Status == http.StatusSwitchingProtocols
	for _, f := range r.Fields {
		switch h1.KindOf(f.Name) {
		case h1.FieldLength, h1.FieldEncoding, h1.FieldConnection, h1.FieldKeepAlive, h1.FieldProxyConnection:
			continue
		case h1.FieldUpgrade:
			if !switching && r.Status != http.StatusUpgradeRequired {
				continue
			}
		}
		out = h1.AppendField(out, f.Name, f.Value)
	}
	if r.Status >= 200 {
		if cookie := x.cookie(); cookie != "" {
			out = h1.AppendField(out, []byte("Set-Cookie"), []byte(cookie))
		}
	}
	switch {
	case switching, r.Status < 200, r.Status == http.StatusNoContent, x.tunnels():
	case framing == h1.ByChunks && x.req.Minor > 0, framing == h1.NoBody && r.Chunked && x.req.Minor > 0:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.Length >= 0 && !r.Chunked:
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, r.Length, 10), "\r\n"...)
	}
	switch {
	case switching:
		out = append(out, "Connection: Upgrade\r\n"...)
	case last && r.Status >= 200:
		out = append(out, "Connection: close\r\n"...)
	case x.req.Minor == 0 && r.Status >= 200 && !x.tunnels():
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	return append(out, "\r\n"...)
}

// tunnels reports whether the response makes the connection a tunnel: it is a 2xx to CONNECT, whatever its fields say.
func (x *exchange) tunnels() bool { return x.req.Connect() && x.resp.Status/100 == 2 }

// tunnel passes a response on after which the connection is a tunnel, then moves bytes both ways until both sides are done.
func (x *exchange) tunnel() error {
	c, ok := x.client.(*httpConn)
	if !ok || !x.tunnels() && (!x.upgrades() || x.reqFraming != h1.NoBody) {
		return errBadResponse
	}
	x.begun, x.closing = true, true
	to := x.conn
	to.pool.forget(to)
	c.out = x.appendResponse(c.out[:0], h1.NoBody, false)
	buffered, _ := to.in.Peek(to.in.Buffered())
	c.out = append(c.out, buffered...)
	if err := c.flush(); err != nil {
		return errClientGone
	}
	buffered, _ = c.in.Peek(c.in.Buffered())
	buffered = append(buffered[:len(buffered):len(buffered)], c.ahead...)
	_, _ = c.in.Discard(c.in.Buffered())
	c.ahead = nil
	if _, err := to.Write(buffered); err != nil {
		return x.backendError(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer x.proxy.contain(func() { c.abort(); to.abort() })
		n, err := x.proxy.s.pipes.tunnel(to.Conn, c.conn)
		c.received.Add(n)
		if err != nil {
			c.abort()
			to.abort()
		}
	}()
	n, err := x.proxy.s.pipes.tunnel(c.conn, to.Conn)
	c.sent.Add(n)
	if err != nil {
		c.abort()
		to.abort()
	}
	<-done
	return nil
}

// spliceFrom is the length of a body that is worth splice(2).
const spliceFrom = 64 << 10

// splice passes the rest of a body with a known length on, from socket to socket.
func (c *httpConn) splice(x *exchange) error {
	b := &x.respBody
	c.out = b.AppendReceived(c.out)
	if err := c.flush(); err != nil {
		return errClientGone
	}
	if b.Left() == 0 {
		return nil
	}
	source := &failingReader{LimitedReader: io.LimitedReader{R: x.conn.Conn, N: b.Left()}}
	var n int64
	var err error
	if to, ok := c.conn.(*net.TCPConn); ok {
		n, err = to.ReadFrom(&source.LimitedReader)
	} else {
		n, err = io.Copy(c.conn, source)
	}
	c.sent.Add(n)
	b.Took(n)
	switch {
	case x.conn.deadline.expired():
		return x.backendError(os.ErrDeadlineExceeded)
	case err != nil && c.lost():
		return errClientGone
	case err != nil:
		return x.backendError(err)
	case b.Left() > 0:
		return x.backendError(io.ErrUnexpectedEOF)
	}
	return nil
}

// A failingReader is a LimitedReader.
type failingReader struct{ io.LimitedReader }
