package lbproxy

import (
	"bufio"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// An httpMemory is what a connection in HTTP/1 needs for its requests. A later connection uses it again: it is most of what a short
// connection would leave to the garbage collector.
type httpMemory struct {
	in        *bufio.Reader
	req, resp h1.Head
	toClient  []byte
	toBackend []byte
}

// borrow gives the connection memory, in which nothing of another connection can be seen.
func (c *httpConn) borrow() *httpMemory {
	m, ok := c.proxy.memory.Get().(*httpMemory)
	if !ok {
		m = &httpMemory{in: bufio.NewReaderSize(nil, clientBuffer)}
	}
	m.in.Reset(reading{c})
	c.in, c.out, c.x.out, c.x.req, c.x.resp = m.in, m.toClient, m.toBackend, m.req, m.resp
	return m
}

// giveBack takes the memory of a connection that has ended, unless a large head has made it large.
func (c *httpConn) giveBack(m *httpMemory) {
	m.toClient, m.toBackend, m.req, m.resp = c.out[:0], c.x.out[:0], c.x.req, c.x.resp
	if cap(m.toClient)+cap(m.toBackend)+m.req.Size()+m.resp.Size() > 2*copyBuffer {
		return
	}
	m.in.Reset(nil)
	m.req.Reset()
	m.resp.Reset()
	c.proxy.memory.Put(m)
}
