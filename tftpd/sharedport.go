package tftpd

import (
	"context"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/bootlab/bootlab/internal/host/datagram"
)

// A mailbox is the line of a transfer that shares its port with all others: whoever reads that port puts in what comes from
// the client.
type sharedPort struct {
	conn   *net.UDPConn // shared
	client netip.AddrPort
	batch  batcher
	source []byte // the control message of the address that was asked
	cut    []byte // and of the segment size
	size   int    // that cut was made for
	in     chan reply
	timer  *time.Timer
}

// maxReplies is how many replies may wait. What does not fit is lost, as on the way.
const maxReplies = 8

func newSharedPort(conn *net.UDPConn, local netip.Addr, client netip.AddrPort) *sharedPort {
	m := &sharedPort{conn: conn, client: client, source: datagram.AppendSource(nil, local), in: make(chan reply, maxReplies), timer: time.NewTimer(time.Hour)}
	m.batch.to = m
	return m
}

// put hands the transfer a reply, unless it has too many already.
func (m *sharedPort) put(r reply) {
	select {
	case m.in <- r:
	default:
	}
}

func (m *sharedPort) send(b []byte, size int) error { return m.batch.send(b, size) }
func (m *sharedPort) ask(b []byte) error            { return m.write(b, 0) }
func (m *sharedPort) close()                        { m.timer.Stop() }

// write implements writer.
func (m *sharedPort) write(b []byte, segment int) error {
	control := m.source
	if segment > 0 {
		if m.size != segment {
			m.cut, m.size = datagram.AppendSegmentSize(append(m.cut[:0], m.source...), segment), segment
		}
		control = m.cut
	}
	_, _, err := m.conn.WriteMsgUDPAddrPort(b, control, m.client)
	return err
}

func (m *sharedPort) receive(ctx context.Context, deadline time.Time) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	select {
	case r := <-m.in:
		return r, nil
	default:
	}
	m.timer.Reset(time.Until(deadline))
	select {
	case r := <-m.in:
		return r, nil
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-m.timer.C:
		return reply{}, os.ErrDeadlineExceeded
	}
}
