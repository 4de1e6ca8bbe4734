package dnsd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

const (
	tlsIdle      = 20 * time.Second // a connection to another server is closed when nothing has come for so long
	tlsHandshake = 5 * time.Second
	maxInFlight  = 512 // queries that wait on one connection
	maxSilent    = 2   // queries that time out, one after the other, before a connection is given up
)

var (
	errConnClosed = errors.New("the connection was closed")
	errConnFull   = errors.New("too many queries wait on the connection")
)

// tlsPool holds a connection to each server that is asked over TLS (RFC 7858): queries share it, and need not wait for each other's
// replies. It is safe for concurrent use.
type tlsPool struct {
	panics  *panics.Server
	dialing singleflight.Group
	reading sync.WaitGroup

	mu    sync.Mutex
	conns map[upstream]*tlsConn
	ended bool
}

// exchangeTLS asks a server over TLS. A connection that the server has closed meanwhile, as it may at any time, is replaced once.
func (f *forwarder) exchangeTLS(ctx context.Context, q upstreamQuery, server upstream, style queryStyle) (*cacheEntry, error) {
	style.mixed, style.pad = false, true
	for first := true; ; first = false {
		conn, err := f.tls.get(ctx, q.table, server)
		if err != nil {
			return nil, fmt.Errorf("connect by TLS: %w", err)
		}
		reply, err := conn.exchange(ctx, q.message(style))
		if errors.Is(err, errConnClosed) && first {
			continue
		}
		if err != nil {
			return nil, err
		}
		e, err := q.read(reply)
		if style.edns && rejectsEDNS(err) {
			style.edns = false
			continue
		}
		return e, err
	}
}

// get returns the open connection to a server, or a new one. One that is being made is waited for; it is made to its end even if ctx
// ends before, for the next query.
func (p *tlsPool) get(ctx context.Context, t *Table, server upstream) (*tlsConn, error) {
	p.mu.Lock()
	conn := p.conns[server]
	p.mu.Unlock()
	if conn != nil && !conn.isClosed() {
		return conn, nil
	}
	made := p.dialing.DoChan(server.String()+" "+server.ca, func() (conn any, err error) {
		err = p.panics.Run(func() error { conn, err = p.dial(t, server); return err })
		return conn, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-made:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*tlsConn), nil
	}
}

// dial connects to a server and verifies that it has the name that the lab file says.
func (p *tlsPool) dial(t *Table, server upstream) (*tlsConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tlsHandshake)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{
		ServerName: server.tls, RootCAs: t.roots[server.ca], MinVersion: tls.VersionTLS12,
		NextProtos: []string{"dot"},
	}}
	conn, err := d.DialContext(ctx, "tcp", server.addr.String())
	if err != nil {
		return nil, err
	}
	c := &tlsConn{conn: conn, waiting: map[uint16]chan []byte{}, closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		c.close()
		return nil, errConnClosed
	}
	p.conns[server] = c
	p.reading.Go(func() {
		defer p.drop(server, c)
		_ = p.panics.Run(c.read) // why it ended is of no interest: the next query finds out
	})
	return c, nil
}

// drop forgets a connection that has ended.
func (p *tlsPool) drop(server upstream, c *tlsConn) {
	p.mu.Lock()
	if p.conns[server] == c {
		delete(p.conns, server)
	}
	p.mu.Unlock()
	c.close()
}

// close ends all connections, for good.
func (p *tlsPool) close() {
	p.mu.Lock()
	p.ended = true
	for _, c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.reading.Wait()
}

// A tlsConn is one connection.
type tlsConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	waiting map[uint16]chan []byte // by ID
	silent  int                    // queries that timed out since the last reply
}

func (c *tlsConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *tlsConn) close() {
	c.once.Do(func() {
		close(c.closed)
		_ = c.conn.Close()
	})
}

// read hands replies to those who wait for them, until the connection ends.
func (c *tlsConn) read() error {
	for {
		b, err := readFramed(c.conn)
		if err != nil {
			return err
		}
		if len(b) < headerLen {
			return io.ErrUnexpectedEOF
		}
		id := binary.BigEndian.Uint16(b)
		c.mu.Lock()
		wait := c.waiting[id]
		delete(c.waiting, id)
		c.silent = 0
		if len(c.waiting) == 0 {
			_ = c.conn.SetReadDeadline(time.Now().Add(tlsIdle))
		}
		c.mu.Unlock()
		if wait != nil {
			wait <- b // has a place for it
		}
	}
}

// exchange sends a query and returns the reply to it.
func (c *tlsConn) exchange(ctx context.Context, msg []byte) ([]byte, error) {
	wait := make(chan []byte, 1)
	id, err := c.send(msg, wait)
	if err != nil {
		return nil, err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[id] == wait {
			delete(c.waiting, id)
		}
	}()
	select {
	case reply := <-wait:
		if err := checkStream(msg, reply); err != nil {
			return nil, err
		}
		return reply, nil
	case <-c.closed:
		return nil, errConnClosed
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.timedOut()
		}
		return nil, ctx.Err()
	}
}

// timedOut notes a query without a reply. A connection on which nothing comes any more is closed, so that the next query makes another.
func (c *tlsConn) timedOut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent++; c.silent >= maxSilent {
		c.close()
	}
}

// send sends a query with an ID that no other one on the connection has.
func (c *tlsConn) send(msg []byte, wait chan []byte) (uint16, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) >= maxInFlight {
		return 0, errConnFull
	}
	for c.waiting[binary.BigEndian.Uint16(msg)] != nil {
		_, _ = rand.Read(msg[:2]) // never fails
	}
	id := binary.BigEndian.Uint16(msg)
	c.waiting[id] = wait
	deadline := time.Now().Add(tlsIdle) // the kernel's clock
	_ = c.conn.SetDeadline(deadline)
	if _, err := c.conn.Write(framed(msg)); err != nil {
		delete(c.waiting, id)
		c.close()
		return 0, fmt.Errorf("%w: %w", errConnClosed, err)
	}
	return id, nil
}
