package lbproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// redirectStatus returns the status of a permanent redirect: only 308 keeps every method, only 301 is known everywhere.
func redirectStatus(method []byte) int {
	if string(method) == http.MethodGet || string(method) == http.MethodHead {
		return http.StatusMovedPermanently
	}
	return http.StatusPermanentRedirect
}

// refuse answers a request whose head cannot be used.
func (c *httpConn) refuse(err error) bool {
	var syntax h1.SyntaxError
	status, why := 0, reason("")
	switch {
	case errors.Is(err, h1.ErrHeadTooLarge):
		status, why = http.StatusRequestHeaderFieldsTooLarge, rejectHead
	case errors.As(err, &syntax):
		status, why = http.StatusBadRequest, rejectSyntax
	case c.deadline.expired():
		status, why = http.StatusRequestTimeout, rejectTimeout
	default:
		return false // the client is gone
	}
	name := ""
	if c.frontend != nil {
		name = c.frontend.Name
	}
	c.proxy.s.reject(name, why, c.x.src, err)
	c.answer(status, err.Error(), "")
	return false
}

// unavailable answers 503. Never a 4xx: installers do not retry after one.
func (c *httpConn) unavailable(why string) {
	c.answer(http.StatusServiceUnavailable, why, "Retry-After: 5\r\n")
}

// answer answers with a text of ours and ends the connection.
func (c *httpConn) answer(status int, text, fields string) {
	c.x.status = status
	c.out = append(c.out[:0], "HTTP/1.1 "...)
	c.out = strconv.AppendInt(c.out, int64(status), 10)
	c.out = append(c.out, ' ')
	c.out = append(c.out, http.StatusText(status)...)
	c.out = append(c.out, "\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"...)
	c.out = append(c.out, fields...)
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(text)+1), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	if string(c.x.req.Method) != http.MethodHead {
		c.out = append(append(c.out, text...), '\n')
	}
	_ = c.flush()
	c.end()
}

// end lets the client read what was sent before the connection is closed.
func (c *httpConn) end() { c.linger(lingerBytes) }

// linger ends our direction, and reads and drops some of what the client still sends.
func (c *httpConn) linger(octets int64) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || c.deadline.expired() || half.CloseWrite() != nil {
		return
	}
	c.timeout = 0
	c.deadline.set(lingerTime)
	_, _ = io.CopyN(io.Discard, c.in, octets)
}

// fail answers a request that got no response, or breaks a response off.
func (x *exchange) fail(err error) {
	p, f := x.proxy, x.frontend
	var syntax h1.SyntaxError
	answer := func(why reason, status int, text string) {
		p.s.reject(f.Name, why, x.src, err)
		x.log.reason = why
		x.answer(status, text)
	}
	x.log.err = err
	switch {
	case x.begun:
		x.log.reason = rejectBroken
		if errors.Is(err, errClientGone) {
			x.log.reason = rejectClient
		}
		x.breakOff()
	case errors.As(err, &syntax) && !errors.Is(err, errBadResponse):
		answer(rejectSyntax, http.StatusBadRequest, err.Error())
	case errors.Is(err, h1.ErrHeadTooLarge) && !errors.Is(err, errBadResponse):
		answer(rejectHead, http.StatusRequestHeaderFieldsTooLarge, err.Error())
	case errors.Is(err, errBodyTimeout):
		answer(rejectTimeout, http.StatusRequestTimeout, err.Error())
	case errors.Is(err, errClientGone):
		x.log.reason = rejectClient
		x.breakOff()
	case errors.Is(err, errNoBackend):
		answer(rejectNoBackend, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" is available")
	case errors.Is(err, errQueueFull):
		answer(rejectQueueFull, http.StatusServiceUnavailable, "balancer "+f.Name+": "+err.Error())
	case errors.Is(err, errQueueTimeout):
		answer(rejectQueueTimeout, http.StatusServiceUnavailable, "balancer "+f.Name+": "+err.Error())
	case isDial(err):
		answer(rejectConnect, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" accepts connections")
	case errors.Is(err, errServerTimeout):
		answer(rejectServerTimeout, http.StatusGatewayTimeout, fmt.Sprintf("a backend of balancer %s did not answer within %s", f.Name, f.Timeouts.Server))
	case errors.Is(err, errBadResponse):
		answer(rejectResponse, http.StatusBadGateway, "a backend of balancer "+f.Name+" sent a malformed response")
	default:
		answer(rejectClosed, http.StatusBadGateway, "a backend of balancer "+f.Name+" closed the connection before it answered")
	}
}

// answer answers with a text of ours, after the upload has ended: it reads from the same connection.
func (x *exchange) answer(status int, text string) {
	x.status = status
	x.stopUpload()
	c, ok := x.client.(*httpConn)
	if !ok {
		x.client.(*http2Stream).answer(status, text)
		return
	}
	fields := ""
	if status == http.StatusServiceUnavailable {
		fields = "Retry-After: 5\r\n"
	}
	c.answer(status, text, fields)
}

// breakOff resets the client's connection, so that a part of a response is not taken for the whole.
func (x *exchange) breakOff() {
	switch c := x.client.(type) {
	case *httpConn:
		c.abort()
	case *http2Stream:
		c.broken = true
	}
}
