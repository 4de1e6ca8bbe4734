package lbproxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// appendRequest appends the head of the request for the backend. Fields keep their order and case; those of one
// connection are replaced, and so are the client's claims about where it comes from.
func (x *exchange) appendRequest(out []byte) []byte {
	r := &x.req
	out = append(out, r.method...)
	out = append(out, ' ')
	out = append(out, r.target...)
	old := r.minor == 0 && x.sending != byChunks
	if old {
		out = append(out, " HTTP/1.0\r\n"...)
	} else {
		out = append(out, " HTTP/1.1\r\n"...)
	}
	if r.hasHost || !old {
		out = appendField(out, []byte("Host"), r.host)
	}
	for _, f := range r.fields {
		switch kindOf(f.name) {
		case fieldHost, fieldLength, fieldEncoding, fieldConnection, fieldKeepAlive, fieldProxyConnection, fieldUpgrade, fieldSettings, fieldTE:
			continue
		case fieldForwarded, fieldForwardedFor, fieldForwardedHost, fieldForwardedProto, fieldForwardedPort:
			continue
		}
		out = appendField(out, f.name, f.value)
	}
	switch {
	case x.sending == byChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.length >= 0:
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, r.length, 10), "\r\n"...)
	}
	out = x.appendForwarded(out)
	switch {
	case r.upgrade && upgradable(r.protocol):
		out = append(out, "Connection: Upgrade\r\n"...)
		out = appendField(out, []byte("Upgrade"), r.protocol)
	case x.frontend.SendProxy != 0: // its header names this request's client
		out = append(out, "Connection: close\r\n"...)
	case old:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	return append(out, "\r\n"...)
}

// appendForwarded appends who the client is: after what a trusted proxy says, else instead of what the client says.
func (x *exchange) appendForwarded(out []byte) []byte {
	var forwardedFor, forwarded, host, proto []byte
	if x.trusted() {
		for _, f := range x.req.fields {
			switch kindOf(f.name) {
			case fieldForwardedFor:
				forwardedFor = append(append(forwardedFor, f.value...), ", "...)
			case fieldForwarded:
				forwarded = append(append(forwarded, f.value...), ", "...)
			case fieldForwardedHost:
				host = f.value
			case fieldForwardedProto:
				proto = f.value
			case fieldForwardedPort:
				out = appendField(out, f.name, f.value)
			}
		}
	}
	out = append(append(out, "X-Forwarded-For: "...), forwardedFor...)
	out = x.src.Addr().AppendTo(out)
	out = append(out, "\r\n"...)
	if host == nil {
		host = x.req.host
	}
	if len(host) > 0 {
		out = appendField(out, []byte("X-Forwarded-Host"), host)
	}
	scheme := []byte("http")
	if x.secure {
		scheme = []byte("https")
	}
	if proto == nil {
		proto = scheme
	}
	out = appendField(out, []byte("X-Forwarded-Proto"), proto)
	if forwarded != nil { // RFC 7239
		forwarded = append(forwarded, "for="...)
		if x.src.Addr().Is6() {
			forwarded = append(append(append(forwarded, `"[`...), x.src.Addr().String()...), `]"`...)
		} else {
			forwarded = x.src.Addr().AppendTo(forwarded)
		}
		out = appendField(out, []byte("Forwarded"), append(append(forwarded, ";proto="...), scheme...))
	}
	return out
}

// trusted reports whether the client is a proxy whose word on the client before it counts.
func (x *exchange) trusted() bool {
	return slices.ContainsFunc(x.frontend.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(x.src.Addr()) })
}

// sticky returns the backend that the request's cookie names; nil: none, or it may not be used. Its count is raised, as by
// pick.
func (x *exchange) sticky() *endpoint {
	f := x.frontend
	for _, field := range x.req.fields {
		if kindOf(field.name) != fieldCookie {
			continue
		}
		for pair := range bytes.SplitSeq(field.value, []byte(";")) {
			name, value, _ := bytes.Cut(trimSpace(pair), []byte("="))
			if string(name) != f.Sticky {
				continue
			}
			for i := range f.endpoints {
				if e := &f.endpoints[i]; e.cookie == string(value) && e.usable() {
					e.state.active.Add(1)
					x.stuck = e
					return e
				}
			}
		}
	}
	return nil
}

// pick chooses the backend of the request, none of those in tried.
func (x *exchange) pick(tried []*endpoint) *endpoint {
	if x.frontend.Sticky != "" && len(tried) == 0 {
		if e := x.sticky(); e != nil {
			return e
		}
	}
	return x.frontend.pick(x.src.Addr(), tried)
}

// cookie returns the Set-Cookie that keeps the client at the backend that answers; empty: it has one, or needs none.
func (x *exchange) cookie() string {
	if x.frontend.Sticky == "" || x.endpoint == nil || x.stuck == x.endpoint {
		return ""
	}
	cookie := x.frontend.Sticky + "=" + x.endpoint.cookie + "; Path=/; HttpOnly; SameSite=Lax"
	if x.secure {
		cookie += "; Secure"
	}
	return cookie
}

// redirect returns where the client is sent instead; empty: nowhere.
func (x *exchange) redirect() string {
	if x.frontend.Redirect != lab.RedirectHTTPS || x.secure || x.trusted() && x.claimsTLS() {
		return ""
	}
	host := string(x.req.host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		if host = name; strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	if host == "" {
		return ""
	}
	return "https://" + host + string(x.req.target)
}

// claimsTLS reports whether a proxy says that its client uses TLS.
func (x *exchange) claimsTLS() bool {
	return slices.ContainsFunc(x.req.fields, func(f field) bool {
		return kindOf(f.name) == fieldForwardedProto && equalFold(f.value, "https")
	})
}

// upgradable reports whether a client may change to a protocol. HTTP/2 would hide its requests from the balancer.
func upgradable(protocol []byte) bool {
	for name := range bytes.SplitSeq(protocol, []byte(",")) {
		name = trimSpace(name)
		if len(name) == 0 || equalFold(name, "h2c") || equalFold(name, "h2") || len(name) >= 4 && equalFold(name[:4], "http") || equalFold(name, "tls/1.0") {
			return false
		}
	}
	return len(protocol) > 0
}

// appendResponse appends the head of a response for an HTTP/1 client. last: the connection ends after it.
func (x *exchange) appendResponse(out []byte, framing framing, last bool) []byte {
	r := &x.resp
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(r.status), 10)
	out = append(out, ' ')
	out = append(out, r.reason...)
	out = append(out, "\r\n"...)
	switching := r.status == http.StatusSwitchingProtocols
	for _, f := range r.fields {
		switch kindOf(f.name) {
		case fieldLength, fieldEncoding, fieldConnection, fieldKeepAlive, fieldProxyConnection:
			continue
		case fieldUpgrade:
			if !switching && r.status != http.StatusUpgradeRequired {
				continue
			}
		}
		out = appendField(out, f.name, f.value)
	}
	if r.status >= 200 {
		if cookie := x.cookie(); cookie != "" {
			out = appendField(out, []byte("Set-Cookie"), []byte(cookie))
		}
	}
	switch {
	case switching, r.status < 200, r.status == http.StatusNoContent:
	case framing == byChunks && x.req.minor > 0, framing == noBody && r.chunked && x.req.minor > 0:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.length >= 0 && !r.chunked:
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, r.length, 10), "\r\n"...)
	}
	switch {
	case switching:
		out = append(out, "Connection: Upgrade\r\n"...)
	case last && r.status >= 200:
		out = append(out, "Connection: close\r\n"...)
	case x.req.minor == 0 && r.status >= 200:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	return append(out, "\r\n"...)
}

// tunnel passes a 101 response on, then moves bytes both ways until both sides are done.
func (x *exchange) tunnel() error {
	c, ok := x.client.(*httpConn)
	if !ok || !x.req.upgrade || !upgradable(x.req.protocol) || x.sending != noBody {
		return errBadResponse
	}
	x.begun, x.closing = true, true
	m := x.member
	m.pool.forget(m)
	c.out = x.appendResponse(c.out[:0], noBody, false)
	buffered, _ := m.in.Peek(m.in.Buffered())
	c.out = append(c.out, buffered...)
	if err := c.flush(); err != nil {
		return errClientGone
	}
	buffered, _ = c.in.Peek(c.in.Buffered())
	if _, err := m.Write(buffered); err != nil {
		return x.memberError(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer x.proxy.contain(func() { c.abort(); m.abort() })
		if _, err := x.proxy.s.spliceOneWay(m.Conn, c.conn); err != nil {
			c.abort()
			m.abort()
		}
	}()
	n, err := x.proxy.s.spliceOneWay(c.conn, m.Conn)
	c.sent.Add(n)
	if err != nil {
		c.abort()
		m.abort()
	}
	<-done
	return nil
}

// spliceFrom is the length of a body that is worth splice(2).
const spliceFrom = 64 << 10

// splice passes the rest of a body with a known length on, from socket to socket.
func (c *httpConn) splice(x *exchange) error {
	b := &x.reply
	buffered, _ := b.in.Peek(int(min(int64(b.in.Buffered()), b.left)))
	c.out = append(c.out, buffered...)
	_, _ = b.in.Discard(len(buffered))
	b.took(int64(len(buffered)))
	if err := c.flush(); err != nil {
		return errClientGone
	}
	if b.left == 0 {
		return nil
	}
	source := &failingReader{LimitedReader: io.LimitedReader{R: x.member.Conn, N: b.left}}
	var n int64
	var err error
	if to, ok := c.conn.(*net.TCPConn); ok {
		n, err = to.ReadFrom(&source.LimitedReader)
	} else {
		n, err = io.Copy(c.conn, source)
	}
	c.sent.Add(n)
	b.took(n)
	switch {
	case err != nil:
		return errClientGone
	case b.left > 0:
		return x.memberError(io.ErrUnexpectedEOF)
	}
	return nil
}

// A failingReader is a LimitedReader.
type failingReader struct{ io.LimitedReader }
